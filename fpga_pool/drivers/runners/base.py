"""Interface of runners, which launch the processes of gangs as guests, and the progress meter that they share.

Entry-point group: `fpga_pool.runners`.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from oslo_config import cfg

from fpga_pool.model.agent.gangs.process import Key, ProcessSpec, Running
from fpga_pool.model.flavor import Tier


class Runner(abc.ABC):
    """The processes of gangs on one host; every other guest is left alone.

    Guests outlive their agent: what a runner reports is observed, and what it must remember stays with the guest.  Each
    method may be repeated, and does what is left to do.  ServiceUnavailable where the hypervisor does not answer.
    """

    @classmethod
    @abc.abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts, state_dir: Path, clock: Callable[[], float]) -> Self:
        """Return the runner of this host as configured; InvalidInput names the option that is wrong."""

    @abc.abstractmethod
    def observe(self) -> dict[Key, Running]:
        """Return all processes that were launched here and not stopped by `end`."""

    @abc.abstractmethod
    def launch(self, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        """Launch a process; the caller ensures that the place is free."""

    @abc.abstractmethod
    def set_tier(self, key: Key, tier: Tier) -> None:
        """Put a process into another tier of its processor.

        The caller ensures that the tier is free, except for a moment in which two processes exchange their tiers.
        """

    @abc.abstractmethod
    def save(self, key: Key) -> None:
        """Start saving a process so that it can resume elsewhere; `observe` reports when that is done."""

    @abc.abstractmethod
    def end(self, key: Key) -> None:
        """Stop a process in any state and remove it completely before returning."""

    @abc.abstractmethod
    def leave(self, key: Key) -> None:
        """Forget a process that is saved; its memory stays until `discard`."""

    @abc.abstractmethod
    def discard(self, saved: str) -> None:
        """Remove a saved memory, even one saved by another host; a missing one is ignored."""


#: A rate is measured over so long at least.
WINDOW_S = 2.0
#: A reported value holds as long as its error is at most this, or at most this share of the time since.
TOLERANCE_S, TOLERANCE = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Work done by a moment, in seconds on a dedicated processor, and the rate since."""

    done_s: float
    rate: float
    at: float


class Meter:
    """The progress of one process."""

    def __init__(self) -> None:
        self._reported: Progress | None = None
        self._since = Progress(0.0, 0.0, 0.0)

    def look(self, done_s: float, now_s: float) -> Progress:
        """Return the report of a process that has done `done_s` by now."""
        reported = self._reported
        if reported is None:
            self._reported = self._since = Progress(done_s, 0.0, now_s)
            return self._reported
        wrong_s = abs(reported.done_s + reported.rate * (now_s - reported.at) - done_s)
        passed_s = now_s - self._since.at
        if passed_s < WINDOW_S:
            return reported
        rate = max((done_s - self._since.done_s) / passed_s, 0.0)
        self._since = Progress(done_s, rate, now_s)
        if wrong_s > max(TOLERANCE_S, TOLERANCE * (now_s - reported.at)):
            self._reported = self._since
        return self._reported or reported
