"""The common implementation of all transition tables."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.history import HistoryEntry, with_event
from fpga_pool.model.values import changed


class Event(msgspec.Struct, frozen=True):
    """Base of the events of objects, except those that are reports of agents."""


class Living(Protocol):
    """An object with a life cycle: it has a state and a history of transitions."""

    @property
    def state(self) -> StrEnum:
        """Current state of the object."""

    @property
    def history(self) -> tuple[HistoryEntry, ...]:
        """Events of the object, oldest first."""


LivingT = TypeVar("LivingT", bound=Living)

#: A rule gets the object, the event and the time; it returns the changed object, including its state, and the actions
#: for its agent.
Rule = Callable[[LivingT, Any, float], tuple[LivingT, list[Action]]]


def sets(*names: str, **values: Any) -> Rule[Any]:
    """Return a rule that only sets fields: those in `names` to the event's values, and others to `values`."""

    def rule(thing: LivingT, event: Any, now_s: float) -> tuple[LivingT, list[Action]]:
        return changed(thing, **values, **{name: getattr(event, name) for name in names}), []

    return rule


class Table(Generic[LivingT]):
    """Rules by state and event; any other pair raises InvalidTransition."""

    def __init__(self, noun: str, rules: Mapping[tuple[Any, type], Rule[LivingT]], *, called_by: str = "uuid") -> None:
        self.noun = noun
        self.rules = rules
        self._called_by = called_by

    def allows(self, state: StrEnum, event: type) -> bool:
        """Return whether `event` has a rule in `state`."""
        return (state, event) in self.rules

    def transition(self, thing: LivingT, event: object, now_s: float) -> tuple[LivingT, list[Action]]:
        """Return `thing` after `event`, its history one entry longer, and the actions for its agent.

        Raises
        ------
        InvalidTransition
            If the table has no rule for the event in this state.

        """
        rule = self.rules.get((thing.state, type(event)))
        if rule is None:
            raise InvalidTransition(self._complaint(thing, event))
        after, actions = rule(thing, event, now_s)
        # Reports of agents have a `message` instead.
        reason = getattr(event, "reason", "") or getattr(event, "message", "")
        name = type(event).__name__
        history = with_event(thing.history, now_s, name, str(thing.state), str(after.state), reason)
        return changed(after, history=history), actions

    def _complaint(self, thing: LivingT, event: object) -> str:
        name = getattr(thing, self._called_by)
        allowed = sorted(kind.__name__ for state, kind in self.rules if state == thing.state)
        lines = [
            f"{self.noun} {name}: {type(event).__name__} is not possible in state {thing.state}"
            + (f" (possible: {', '.join(allowed)})" if allowed else ", which is final"),
            "  History:",
            *(f"    {entry.at:.3f} {entry.event}: {entry.before} -> {entry.after}" for entry in thing.history),
        ]
        return "\n".join(lines)
