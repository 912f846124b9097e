"""Instructions of an agent, in the order of their execution.

There are three kinds: records (all of one event in one transaction, before its other instructions), instructions for
the executor of a slot (executed one after the other; all but those on guest use are answered by an event), and others.
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
    """Base of the instructions to record something."""


class KeepEpoch(RecordInstruction, frozen=True):
    """Record the latest epoch of a shard: only commands of this or a later epoch are accepted."""

    shard: str
    epoch: int


class KeepCommand(RecordInstruction, frozen=True):
    """Record that a command was executed, so that older ones of its slot are refused and a repeat is only answered."""

    command: Command


class KeepJob(RecordInstruction, frozen=True):
    """Record the state of a held job."""

    job: HeldJob


class ForgetJob(RecordInstruction, frozen=True):
    """Remove the record of a job, with its recorded input and result."""

    job: str


class KeepEviction(RecordInstruction, frozen=True):
    """Record a job as EVICTED, unless its end is recorded already; an end that is recorded later replaces this."""

    job: str
    done: float


class KeepInput(RecordInstruction, frozen=True):
    """Record the small input of a job, which came with the event."""

    job: str


class KeepResult(RecordInstruction, frozen=True):
    """Make the result of an ended job durable: record a small one, give the file of a large one its final name."""

    job: HeldJob


class KeepHold(RecordInstruction, frozen=True):
    """Record that a slot is held for an instance."""

    slot: str
    hold: Hold


class ForgetHold(RecordInstruction, frozen=True):
    """Remove the record that a slot is held for an instance."""

    slot: str


class Report(RecordInstruction, frozen=True):
    """Record a report, and send it to the pool at least once."""

    report: ReportMessage


class ReportLater(RecordInstruction, frozen=True):
    """Send a report; it is recorded with the next transaction only, as a running job is staged after a kill anyway."""

    report: ReportMessage


# For the executor of a slot ------------------------------------------------------------------------------------


class SlotInstruction(Instruction, frozen=True):
    """Base of the instructions for the executor of a slot."""

    slot: str


class LoadSlot(SlotInstruction, frozen=True):
    """Load a function.  Answer: Loaded, LoadRefused or LoadFailed."""

    function: str


class ScrubSlot(SlotInstruction, frozen=True):
    """Clear the memory of the slot.  Answer: Scrubbed or ScrubFailed."""


class Compute(SlotInstruction, frozen=True):
    """Compute a job, after clearing the memory if `scrub`.  Answer: ComputationEnded or ComputationFailed.

    If it exceeds the time limit, the executor sends ComputationOverdue before that.
    """

    job: HeldJob
    scrub: bool
    limit_s: float


class BeginGuestUse(SlotInstruction, frozen=True):
    """Let an instance use the slot."""

    hold: HoldSlot


class EndGuestUse(SlotInstruction, frozen=True):
    """Revoke the instance's access to the slot; a running computation is stopped first."""


class CheckCard(SlotInstruction, frozen=True):
    """Check the slot after a delay, which a WakeSlot ends.  Answer: CardSeen."""

    after_s: float


# The rest ------------------------------------------------------------------------------------------------------


class Answer(Instruction, frozen=True):
    """Notify the sender of a command of its outcome."""

    outcome: Outcome


class WakeSlot(Instruction, frozen=True):
    """Wake an idle executor, as there may be something to do.  Answer: SlotFree."""

    slot: str


class StopComputation(Instruction, frozen=True):
    """Stop the computation of a slot if it still computes this attempt."""

    slot: str
    job: str
    attempt: int


class RecordEnds(Instruction, frozen=True):
    """Send EndsDue soon: an end and its slot's state wait to be recorded, perhaps together with others."""


class GatherInput(Instruction, frozen=True):
    """Assemble the input of a job from the results that are its sources.  Answer: InputArrived or InputUnavailable."""

    job: HeldJob


class Settle(Instruction, frozen=True):
    """Notify those that wait for the end of a job: of its result if `code` is "", otherwise of the failure."""

    job: str
    code: str = ""
    message: str = ""


class DeleteFiles(Instruction, frozen=True):
    """Delete all files of a job."""

    job: str


class DeleteInput(Instruction, frozen=True):
    """Delete the input of a completed job."""

    job: str


class DeleteOutput(Instruction, frozen=True):
    """Delete the output of an attempt that is no longer needed."""

    job: str
    attempt: int


class DeleteStrays(Instruction, frozen=True):
    """Delete the files of all jobs that are not held."""


# ---- Transition tables of an agent

T = TypeVar("T")

#: A rule gets the object, the event and the time; it returns the changed object (None = it is removed) and the
#: instructions.
AgentRule = Callable[[T, Any, float], tuple[T | None, list[Instruction]]]


class AgentTable(Generic[T]):
    """Rules by state and event; any other pair raises InvalidTransition."""

    def __init__(self, noun: str, state: str, name: str, rules: Mapping[tuple[Any, type], AgentRule[T]]) -> None:
        """`state` and `name` are the attributes that contain the state and the name of an object."""
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
