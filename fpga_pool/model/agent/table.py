"""The one mechanism behind the transition tables of an agent."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

from fpga_pool.model.agent.instructions import Instruction
from fpga_pool.model.exceptions import InvalidTransition

T = TypeVar("T")

#: A rule gets the object, the event and the time; it returns the changed object (None = it is gone), and what is to
#: be done.
AgentRule = Callable[[T, Any, float], tuple[T | None, list[Instruction]]]


class AgentTable(Generic[T]):
    """Which event does what in which state; any other pair is an InvalidTransition."""

    def __init__(self, noun: str, state: str, name: str, rules: Mapping[tuple[Any, type], AgentRule[T]]) -> None:
        """`state` and `name` are the attributes of the object that hold these."""
        self.noun = noun
        self.rules = rules
        self.state_field = state
        self.state_of: Callable[[T], StrEnum] = attrgetter(state)
        self._name_of: Callable[[T], str] = attrgetter(name)

    def allows(self, state: StrEnum, event: type) -> bool:
        """Return whether `event` has a rule in `state`."""
        return (state, event) in self.rules

    def transition(self, thing: T, event: object, now_s: float) -> tuple[T | None, list[Instruction]]:
        """Return `thing` after `event`, and the instructions.

        Raises
        ------
        InvalidTransition
            If the table has no rule for the event in this state.

        """
        state = self.state_of(thing)
        rule = self.rules.get((state, type(event)))
        if rule is None:
            allowed = sorted(kind.__name__ for possible, kind in self.rules if possible == state)
            raise InvalidTransition(
                f"{self.noun} {self._name_of(thing)}: {type(event).__name__} is not possible in state {state}"
                f" (possible: {', '.join(allowed) or 'nothing'})"
            )
        return rule(thing, event, now_s)
