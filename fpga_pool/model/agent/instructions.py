"""Instructions of an agent, in the order of their execution.

Three kinds: what is recorded (all of one event in one transaction, before anything else is carried out), what the
executor of a slot does (one after the other; each but the guest's is answered by an event), and the rest.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from fpga_pool.model.agent.objects import HeldJob, Hold
from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.messages.agents import Command, HoldSlot, Outcome
from fpga_pool.model.messages.agents import Report as ReportMessage

# To record -----------------------------------------------------------------------------------------------------


class Instruction(msgspec.Struct, frozen=True):
    """Base of all instructions."""


class RecordInstruction(Instruction, frozen=True):
    """Base of what is recorded."""


class KeepEpoch(RecordInstruction, frozen=True):
    """Commands for this shard come from the owner of this epoch."""

    shard: str
    epoch: int


class KeepCommand(RecordInstruction, frozen=True):
    """A command was executed: its slot refuses older ones, a repeat is answered."""

    command: Command


class KeepJob(RecordInstruction, frozen=True):
    """A job is held as this."""

    job: HeldJob


class ForgetJob(RecordInstruction, frozen=True):
    """A job is not held any more, nor its recorded input and result."""

    job: str


class KeepEviction(RecordInstruction, frozen=True):
    """A job is EVICTED, unless its end is recorded already; an end that is recorded later replaces this."""

    job: str
    done: float


class KeepInput(RecordInstruction, frozen=True):
    """The small input of a job is recorded, which came with the event."""

    job: str


class KeepResult(RecordInstruction, frozen=True):
    """The result of an ended job becomes durable: recorded if it is small, else its file under its final name."""

    job: HeldJob


class KeepHold(RecordInstruction, frozen=True):
    """A slot is kept for an instance."""

    slot: str
    hold: Hold


class ForgetHold(RecordInstruction, frozen=True):
    """A slot is no longer reserved for an instance."""

    slot: str


class Report(RecordInstruction, frozen=True):
    """Send a report to the pool, at least once."""

    report: ReportMessage


class ReportLater(RecordInstruction, frozen=True):
    """Send a report, recorded with the next transaction: after a kill a running job is staged anyway."""

    report: ReportMessage


# For the executor of a slot ------------------------------------------------------------------------------------


class SlotInstruction(Instruction, frozen=True):
    """Base of what the executor of a slot does."""

    slot: str


class LoadSlot(SlotInstruction, frozen=True):
    """Load a function: Loaded, LoadRefused or LoadFailed."""

    function: str


class ScrubSlot(SlotInstruction, frozen=True):
    """Clear the memory: Scrubbed or ScrubFailed."""


class Compute(SlotInstruction, frozen=True):
    """Compute a job, on cleared memory if `scrub`: ComputationEnded or ComputationFailed.

    If it takes longer than the limit, ComputationOverdue in between.
    """

    job: HeldJob
    scrub: bool
    limit_s: float


class BeginGuestUse(SlotInstruction, frozen=True):
    """Let an instance use the slot."""

    hold: HoldSlot


class EndGuestUse(SlotInstruction, frozen=True):
    """Revoke the instance's access to the slot; a running computation is stopped first."""


class LookAtCard(SlotInstruction, frozen=True):
    """Look at the slot after a while: CardSeen; a WakeSlot ends the wait."""

    after_s: float


# The rest ------------------------------------------------------------------------------------------------------


class Answer(Instruction, frozen=True):
    """Notify the sender of a command of its outcome."""

    outcome: Outcome


class WakeSlot(Instruction, frozen=True):
    """There may be something to do for an executor that has nothing to do: SlotFree."""

    slot: str


class StopComputation(Instruction, frozen=True):
    """Stop what a slot computes, if that is still this attempt."""

    slot: str
    job: str
    attempt: int


class RecordEnds(Instruction, frozen=True):
    """An end, and its slot's state, wait to be recorded: EndsDue, soon; several may be recorded together."""


class GatherInput(Instruction, frozen=True):
    """Make the input of a job from the results that are its sources: InputArrived or InputUnavailable."""

    job: HeldJob


class Settle(Instruction, frozen=True):
    """Notify the waiters for the end of a job: its result if `code` is "", otherwise the reason of the failure."""

    job: str
    code: str = ""
    message: str = ""


class DeleteFiles(Instruction, frozen=True):
    """Delete all files of a job."""

    job: str


class DeleteInput(Instruction, frozen=True):
    """Delete the input of a job that is complete."""

    job: str


class DeleteOutput(Instruction, frozen=True):
    """Delete the output of an attempt that is no longer needed."""

    job: str
    attempt: int


class DeleteStrays(Instruction, frozen=True):
    """Delete the files of all jobs that are not held."""


# ---- The one mechanism behind the transition tables of an agent

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
