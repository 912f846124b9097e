"""What a runner does: it launches the processes of gangs on a host, each as a guest in a tier of a processor.

Entry-point group: `fpga_pool.runners`.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

from oslo_config import cfg

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
    #: told anew only when it goes on otherwise.
    done_s: float
    rate: float
    progress_at: float
    #: CPU time it has used.
    cpu_s: float
    #: Name of its memory where it is saved; "" = what it has done is all there is.
    saved: str = ""
    #: Why it has failed.
    reason: str = ""


class Runner(abc.ABC):
    """The processes of gangs on one host; every other guest is left alone.

    Guests outlive their agent: what a runner tells is observed, and what it must remember stays with the guest.  Each
    method may be repeated, and does what is left to do.  ServiceUnavailable where the hypervisor does not answer.
    """

    @classmethod
    @abc.abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:
        """Return the runner of this host as configured; InvalidInput names the option that is wrong."""

    @abc.abstractmethod
    def observe(self) -> dict[Key, Running]:
        """Return all processes that were launched here and not ended by `end`."""

    @abc.abstractmethod
    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        """Launch a process; the caller sees to it that nobody else has the place."""

    @abc.abstractmethod
    def set_tier(self, key: Key, tier: Tier) -> None:
        """Put a process into another tier of its processor; the caller sees to it that nobody else has it."""

    @abc.abstractmethod
    def save(self, key: Key) -> None:
        """Begin to stop a process so that it can go on elsewhere; `observe` tells when that is done."""

    @abc.abstractmethod
    def end(self, key: Key) -> None:
        """Stop a process, whatever it does, and forget it; nothing is left of it when this returns."""

    @abc.abstractmethod
    def leave(self, key: Key) -> None:
        """Forget a process that is saved; its memory stays until `discard`."""

    @abc.abstractmethod
    def discard(self, saved: str) -> None:
        """Remove a saved memory, whichever host has saved it; nothing where there is none."""
