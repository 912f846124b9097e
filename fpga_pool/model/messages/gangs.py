"""Messages between the scheduler and the agents about gangs; see `model.messages.agents`."""

from typing import Annotated

from msgspec import Meta

from fpga_pool.model.codec import Message, Variant
from fpga_pool.model.fields import Count, Duration, Id, Number, Reason, ReportedMoment, Text, text
from fpga_pool.model.flavor import Tier

# Commands; each is fenced by the processor --------------------------------------------------------------------------


class ProcessMessage(Variant, frozen=True, kw_only=True):
    """Base of the messages about one process of one attempt of a gang."""

    gang: Id
    index: Count
    attempt: Count


class LaunchProcess(ProcessMessage, frozen=True, kw_only=True):
    """Launch a process in a tier of the processor."""

    tier: Tier
    #: Number of processes of the gang.
    processes: Count
    cpu_usage: Number
    work_s: Number
    #: Computation time done before, from which it resumes.
    done_s: Number = 0.0
    #: Image of its guest ("" = the host's default), and the command passed to it.
    image: Text = ""
    command: Annotated[str, text(4096)] = ""
    #: Name of the saved memory from which it resumes ("" = none), see `ProcessSaved`.
    saved: Text = ""


class SetTier(ProcessMessage, frozen=True, kw_only=True):
    """Move a process to another tier of its processor."""

    tier: Tier


class SaveProcess(ProcessMessage, frozen=True, kw_only=True):
    """Save a process so that it can resume elsewhere, and report its progress."""


class StopProcess(ProcessMessage, frozen=True, kw_only=True):
    """Stop a process permanently, and report when nothing of it is left, even if it does not exist."""

    #: Name of a saved memory to remove, because nothing will resume from it; "" = none.
    saved: Text = ""


GangAction = LaunchProcess | SetTier | SaveProcess | StopProcess


# Reports -------------------------------------------------------------------------------------------------------


class ProcessReport(ProcessMessage, frozen=True, kw_only=True):
    """Base of the reports on one process; `at` is the agent's UTC time."""

    at: ReportedMoment


class ProcessStarted(ProcessReport, frozen=True, kw_only=True):
    """The process has started."""


class ProcessExited(ProcessReport, frozen=True, kw_only=True):
    """The process has completed its work and ended."""

    cpu_s: Duration = 0.0


class ProcessSaved(ProcessReport, frozen=True, kw_only=True):
    """The process was stopped with its progress saved, and can resume elsewhere."""

    done_s: Duration
    cpu_s: Duration = 0.0
    #: Name of its saved memory, which all hosts can access; "" = only its progress is saved.
    saved: Text = ""


class ProcessStopped(ProcessReport, frozen=True, kw_only=True):
    """Nothing of the process is left."""

    cpu_s: Duration = 0.0


class ProcessFailed(ProcessReport, frozen=True, kw_only=True):
    """The process could not be launched, moved to another tier or saved, or has died; nothing of it is left."""

    message: Reason
    cpu_s: Duration = 0.0


GangReport = ProcessStarted | ProcessExited | ProcessSaved | ProcessStopped | ProcessFailed


# Heartbeats ----------------------------------------------------------------------------------------------------


class ObservedProcessor(Message, frozen=True, kw_only=True):
    """A processor that its host offers to gangs, and the last command executed on it; see `ObservedSlot`."""

    processor: Text
    number: Count
    sequence: Count = 0
    epoch: Count = 0
    #: False if the host has withdrawn it while a gang used it: no other process may be placed here.
    offered: bool = True


class ObservedProcess(Message, frozen=True, kw_only=True):
    """A process as its agent knows it now."""

    gang: Id
    index: Count
    attempt: Count
    processor: Text
    tier: Tier
    #: Progress at `progress_at`, in seconds on a dedicated processor, and its rate since then; the values stay the same
    #: in every heartbeat while the rate does not change.
    done_s: Duration = 0.0
    rate: Annotated[float, Meta(ge=0, le=1e3)] = 0.0
    progress_at: ReportedMoment = 0.0
    #: Whether its agent is stopping or saving it.
    ending: bool = False
