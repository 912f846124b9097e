"""What the scheduler and the agents say to each other about gangs; see `model.messages`."""

from dataclasses import dataclass

from fpga_pool.model.flavor import Tier

# Commands; each is one of the processor's ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchProcess:
    """Launch a process in a tier of the processor."""

    gang: str
    index: int
    attempt: int
    tier: Tier
    #: Processes of the gang.
    processes: int
    cpu_usage: float
    work_s: float
    #: What it has done already, where it goes on.
    done_s: float = 0.0
    #: Name of the image that its guest runs, "" = that of the host; and what the image is told to do.
    image: str = ""
    command: str = ""
    #: Name of the saved memory that it goes on from, "" = none: see `ProcessSaved`.
    saved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTier:
    """Put a process into another tier of the processor where it is."""

    gang: str
    index: int
    attempt: int
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveProcess:
    """Stop a process so that it can go on elsewhere, and tell how far it was."""

    gang: str
    index: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProcess:
    """Stop a process for good, and tell when nothing of it is left; so too where there is none."""

    gang: str
    index: int
    attempt: int
    #: Name of a saved memory that nobody will go on from: it is removed.
    saved: str = ""


GangAction = LaunchProcess | SetTier | SaveProcess | StopProcess


# Reports -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """Base of what is said about one process; `at` is the agent's UTC time."""

    gang: str
    index: int
    attempt: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted(ProcessReport):
    """The process runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExited(ProcessReport):
    """The process has done its work and is gone."""

    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSaved(ProcessReport):
    """The process was stopped, and can go on elsewhere from what it had done."""

    done_s: float
    cpu_s: float = 0.0
    #: Name of its saved memory, where all hosts find it; "" = what it has done is all there is to tell.
    saved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStopped(ProcessReport):
    """Nothing of the process is left."""

    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFailed(ProcessReport):
    """The process could not be launched, moved to another tier or saved, or has died; nothing of it is left."""

    message: str
    cpu_s: float = 0.0


GangReport = ProcessStarted | ProcessExited | ProcessSaved | ProcessStopped | ProcessFailed


# Heartbeats ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProcessor:
    """A processor that its host gives to gangs, and the last command executed on it; see `ObservedSlot`."""

    processor: str
    number: int
    sequence: int = 0
    epoch: int = 0
    #: False: no other process may come here; it was taken from the gangs while one of them had it.
    offered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProcess:
    """A process as its agent knows it now."""

    gang: str
    index: int
    attempt: int
    processor: str
    tier: Tier
    #: What it had done at a moment, in seconds on a processor of its own, and its rate since: the same in every beat
    #: as long as it goes on like that.
    done_s: float = 0.0
    rate: float = 0.0
    progress_at: float = 0.0
    #: Its agent is about to stop or to save it.
    ending: bool = False
