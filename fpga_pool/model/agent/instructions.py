"""Instructions of an agent, in the order of their execution.

Three kinds: what is recorded (all of one event in one transaction, before anything else is carried out), what the
executor of a slot does (one after the other; each but the guest's is answered by an event), and the rest.
"""

from dataclasses import dataclass

from fpga_pool.model.agent.objects import HeldJob, Hold
from fpga_pool.model.messages.agents import Command, HoldSlot, Outcome
from fpga_pool.model.messages.agents import Report as ReportMessage

# To record -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instruction:
    """Base of all instructions."""


@dataclass(frozen=True, slots=True)
class RecordInstruction(Instruction):
    """Base of what is recorded."""


@dataclass(frozen=True, slots=True)
class KeepEpoch(RecordInstruction):
    """Commands for this shard come from the owner of this epoch."""

    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class KeepCommand(RecordInstruction):
    """A command was executed: its slot refuses older ones, a repeat is answered."""

    command: Command


@dataclass(frozen=True, slots=True)
class KeepJob(RecordInstruction):
    """A job is held as this."""

    job: HeldJob


@dataclass(frozen=True, slots=True)
class ForgetJob(RecordInstruction):
    """A job is not held any more, nor its recorded input and result."""

    job: str


@dataclass(frozen=True, slots=True)
class KeepEviction(RecordInstruction):
    """A job is EVICTED, unless its end is recorded already; an end that is recorded later replaces this."""

    job: str
    done: float


@dataclass(frozen=True, slots=True)
class KeepInput(RecordInstruction):
    """The small input of a job is recorded, which came with the event."""

    job: str


@dataclass(frozen=True, slots=True)
class KeepResult(RecordInstruction):
    """The result of an ended job becomes durable: recorded if it is small, else its file under its final name."""

    job: HeldJob


@dataclass(frozen=True, slots=True)
class KeepHold(RecordInstruction):
    """A slot is kept for an instance."""

    slot: str
    hold: Hold


@dataclass(frozen=True, slots=True)
class ForgetHold(RecordInstruction):
    """A slot is no longer reserved for an instance."""

    slot: str


@dataclass(frozen=True, slots=True)
class Report(RecordInstruction):
    """Send a report to the pool, at least once."""

    report: ReportMessage


@dataclass(frozen=True, slots=True)
class ReportLater(RecordInstruction):
    """Send a report, recorded with the next transaction: after a kill a running job is staged anyway."""

    report: ReportMessage


# For the executor of a slot ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotInstruction(Instruction):
    """Base of what the executor of a slot does."""

    slot: str


@dataclass(frozen=True, slots=True)
class LoadSlot(SlotInstruction):
    """Load a function: Loaded, LoadRefused or LoadFailed."""

    function: str


@dataclass(frozen=True, slots=True)
class ScrubSlot(SlotInstruction):
    """Clear the memory: Scrubbed or ScrubFailed."""


@dataclass(frozen=True, slots=True)
class Compute(SlotInstruction):
    """Compute a job, on cleared memory if `scrub`: ComputationEnded or ComputationFailed.

    If it takes longer than the limit, ComputationOverdue in between.
    """

    job: HeldJob
    scrub: bool
    limit_s: float


@dataclass(frozen=True, slots=True)
class BeginGuestUse(SlotInstruction):
    """Let an instance use the slot."""

    hold: HoldSlot


@dataclass(frozen=True, slots=True)
class EndGuestUse(SlotInstruction):
    """Revoke the instance's access to the slot; a running computation is stopped first."""


@dataclass(frozen=True, slots=True)
class LookAtCard(SlotInstruction):
    """Look at the slot after a while: CardSeen; a WakeSlot ends the wait."""

    after_s: float


# The rest ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer(Instruction):
    """Notify the sender of a command of its outcome."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WakeSlot(Instruction):
    """There may be something to do for an executor that has nothing to do: SlotFree."""

    slot: str


@dataclass(frozen=True, slots=True)
class StopComputation(Instruction):
    """Stop what a slot computes, if that is still this attempt."""

    slot: str
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RecordEnds(Instruction):
    """An end, and its slot's state, wait to be recorded: EndsDue, soon; several may be recorded together."""


@dataclass(frozen=True, slots=True)
class GatherInput(Instruction):
    """Make the input of a job from the results that are its sources: InputArrived or InputUnavailable."""

    job: HeldJob


@dataclass(frozen=True, slots=True)
class Settle(Instruction):
    """Notify the waiters for the end of a job: its result if `code` is "", otherwise the reason of the failure."""

    job: str
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeleteFiles(Instruction):
    """Delete all files of a job."""

    job: str


@dataclass(frozen=True, slots=True)
class DeleteInput(Instruction):
    """Delete the input of a job that is complete."""

    job: str


@dataclass(frozen=True, slots=True)
class DeleteOutput(Instruction):
    """Delete the output of an attempt that is no longer needed."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class DeleteStrays(Instruction):
    """Delete the files of all jobs that are not held."""
