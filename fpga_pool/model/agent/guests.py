"""The processes of gangs as guests of a host: what is launched, and what can be seen of it."""

from dataclasses import dataclass
from enum import Enum

from fpga_pool.model.flavor import Tier


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which process: of which attempt of which gang."""

    gang: str
    index: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.gang}.{self.attempt}.{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What is launched."""

    key: Key
    #: Processes of the gang.
    processes: int
    #: Share of a processor that it uses on one of its own, and how long it computes there.
    cpu_usage: float
    work_s: float
    #: What it has done already, where it goes on.
    done_s: float = 0.0
    #: What its guest runs, "" = what the host has for all, and what that is told to do.
    image: str = ""
    command: str = ""
    #: The saved memory that it goes on from, as `Running.saved` told it; "" = it begins.
    saved: str = ""


class Phase(Enum):
    """What a process that was launched does."""

    RUNNING = "running"
    #: It is on its way out, with what it has done.
    SAVING = "saving"
    #: It does not run any more, and can go on elsewhere.
    SAVED = "saved"
    #: It has done its work.
    EXITED = "exited"
    #: It has died, or cannot be saved: `Running.reason` tells why.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process as observed."""

    phase: Phase
    processor: int
    #: None = it was launched and is in no tier yet.
    tier: Tier | None
    #: What it had done at a moment (UTC seconds of the pool), in seconds on a processor of its own, and its rate since;
    #: both change only when its rate does.
    done_s: float
    rate: float
    progress_at: float
    #: CPU time it has used.
    cpu_s: float
    #: Name of its memory where it is saved; "" = what it has done is all there is.
    saved: str = ""
    #: Why it has failed.
    reason: str = ""
