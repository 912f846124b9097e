"""Messages between the scheduler and the agents about gangs; see `model.messages.agents`."""

from fpga_pool.model.codec import Message, Variant
from fpga_pool.model.fields import Number
from fpga_pool.model.flavor import Tier

# Commands; each is one of the processor's ---------------------------------------------------------------------------


class LaunchProcess(Variant, frozen=True, kw_only=True):
    """Launch a process in a tier of the processor."""

    gang: str
    index: int
    attempt: int
    tier: Tier
    #: Processes of the gang.
    processes: int
    cpu_usage: Number
    work_s: Number
    #: What it has done already, where it goes on.
    done_s: Number = 0.0
    #: Image of its guest, "" = the host's default; and the command passed to it.
    image: str = ""
    command: str = ""
    #: Name of the saved memory that it goes on from, "" = none: see `ProcessSaved`.
    saved: str = ""


class SetTier(Variant, frozen=True, kw_only=True):
    """Put a process into another tier of the processor where it is."""

    gang: str
    index: int
    attempt: int
    tier: Tier


class SaveProcess(Variant, frozen=True, kw_only=True):
    """Save a process so that it can resume elsewhere, and report its progress."""

    gang: str
    index: int
    attempt: int


class StopProcess(Variant, frozen=True, kw_only=True):
    """Stop a process permanently, and report when nothing of it is left, even if it does not exist."""

    gang: str
    index: int
    attempt: int
    #: Name of a saved memory that will not be resumed from: it is removed.
    saved: str = ""


GangAction = LaunchProcess | SetTier | SaveProcess | StopProcess


# Reports -------------------------------------------------------------------------------------------------------


class ProcessReport(Variant, frozen=True, kw_only=True):
    """Base of the reports on one process; `at` is the agent's UTC time."""

    gang: str
    index: int
    attempt: int
    at: Number


class ProcessStarted(ProcessReport, frozen=True, kw_only=True):
    """The process runs."""


class ProcessExited(ProcessReport, frozen=True, kw_only=True):
    """The process has done its work and is gone."""

    cpu_s: Number = 0.0


class ProcessSaved(ProcessReport, frozen=True, kw_only=True):
    """The process was stopped with its progress saved, and can resume elsewhere."""

    done_s: Number
    cpu_s: Number = 0.0
    #: Name of its saved memory, accessible to all hosts; "" = only its progress is saved.
    saved: str = ""


class ProcessStopped(ProcessReport, frozen=True, kw_only=True):
    """Nothing of the process is left."""

    cpu_s: Number = 0.0


class ProcessFailed(ProcessReport, frozen=True, kw_only=True):
    """The process could not be launched, moved to another tier or saved, or has died; nothing of it is left."""

    message: str
    cpu_s: Number = 0.0


GangReport = ProcessStarted | ProcessExited | ProcessSaved | ProcessStopped | ProcessFailed


# Heartbeats ----------------------------------------------------------------------------------------------------


class ObservedProcessor(Message, frozen=True, kw_only=True):
    """A processor that its host gives to gangs, and the last command executed on it; see `ObservedSlot`."""

    processor: str
    number: int
    sequence: int = 0
    epoch: int = 0
    #: False: no other process may come here; it was taken from the gangs while one of them had it.
    offered: bool = True


class ObservedProcess(Message, frozen=True, kw_only=True):
    """A process as its agent knows it now."""

    gang: str
    index: int
    attempt: int
    processor: str
    tier: Tier
    #: What it had done at a moment, in seconds on a dedicated processor, and its rate since: the same in every beat
    #: as long as it goes on like that.
    done_s: Number = 0.0
    rate: Number = 0.0
    progress_at: Number = 0.0
    #: Its agent is about to stop or to save it.
    ending: bool = False
