"""Outcome of a simulation of gangs: arrays, the metrics of section 3.3 (two-tier paper), and files (doc/formats)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from scipy import special

from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.files import replacing
from fpga_pool.sim.gangs.trace import Trace

# ---- Outcome


class Sink(Protocol):
    """Receiver of the outcome during the simulation."""

    def stretch(self, gang: int, begin_s: float, end_s: float, tier: str, processors: Ints, rate: float) -> None:
        """Take a stretch of constant rate; a `kill` is one without length."""
        ...

    def finished(self, gang: int, start_s: float, finish_s: float, migrations: int, kills: int, swaps: int) -> None:
        """Take a gang that has done its work."""
        ...

    def waits(self, gang: int, begin_s: float, why: str) -> None:
        """Take when a gang that has just come, and does not get to the foreground, is expected to, and why it waits."""
        ...


class Nowhere:
    """Keeps nothing."""

    def stretch(self, gang: int, begin_s: float, end_s: float, tier: str, processors: Ints, rate: float) -> None:
        """Drop it."""

    def finished(self, gang: int, start_s: float, finish_s: float, migrations: int, kills: int, swaps: int) -> None:
        """Drop it."""

    def waits(self, gang: int, begin_s: float, why: str) -> None:
        """Drop it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of a trace."""

    #: (G,) when each gang first ran, below 0 = never, and when it was done, or was cancelled.
    start_s: Floats
    finish_s: Floats
    migrations: int
    kills: int
    tier_swaps: int
    #: Instants at which something happened.
    events: int
    #: Processor-seconds with a process in each tier.
    front_busy_s: float
    behind_busy_s: float


# ---- Metrics

#: Run times below this count as this in the bounded slowdown.
TAU_S = 10.0
_BATCHES = 20
#: Share of the gangs at either end that are no part of the batch means: the machine fills, and empties.
_ENDS = 0.1
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean by the method of batch means, and half the width of its 95 % confidence interval."""

    mean: float
    half_width: float


def response_s(trace: Trace, outcome: Outcome) -> Floats:
    """Return the time from the submission of each gang to its end."""
    return outcome.finish_s - trace.submit_s


def bounded_slowdown(trace: Trace, outcome: Outcome) -> Floats:
    """Return how much longer each gang took than alone; of those shorter than tau, than tau."""
    return np.maximum(1.0, response_s(trace, outcome) / np.maximum(TAU_S, trace.run_s))


def batch_means(values: Floats) -> Interval:
    """Return the mean of what is in order of submission, without the ends; not a number where there is too little."""
    ends = int(len(values) * _ENDS)
    middle = values[ends : len(values) - ends]
    if len(middle) < 2 * _BATCHES:
        return Interval(float(middle.mean()) if len(middle) else float("nan"), float("nan"))
    means = np.array([batch.mean() for batch in np.array_split(middle, _BATCHES)])
    deviation = float(means.std(ddof=1)) / _BATCHES**0.5
    return Interval(float(middle.mean()), deviation * float(special.stdtrit(_BATCHES - 1, (1 + _CONFIDENCE) / 2)))


def utilisation(processors: int, trace: Trace, outcome: Outcome) -> tuple[float, float]:
    """Return the share of time, from first submission to last end, in which processors have a process in each tier."""
    if not len(trace.job):
        return 0.0, 0.0
    span_s = processors * (float(outcome.finish_s.max()) - float(trace.submit_s[0]))
    return outcome.front_busy_s / span_s, outcome.behind_busy_s / span_s


# ---- Files

_HEAD = "# format_version=1\n"
_BUFFER_BYTES = 1 << 20


class Files:
    """Writes a row for each gang that is done, and for each stretch and each gang that waits where they are wanted."""

    def __init__(
        self, trace: Trace, jobs: IO[str], stretches: IO[str] | None = None, waiting: IO[str] | None = None
    ) -> None:
        self._jobs, self._stretches, self._waiting = jobs, stretches, waiting
        self._name: list[int] = trace.job.tolist()
        self._rows = list(zip(trace.submit_s.tolist(), trace.width.tolist(), trace.run_s.tolist(), strict=True))
        jobs.write(f"{_HEAD}job,submit_s,start_s,finish_s,processors,run_s,migrations,kills,tier_swaps\n")
        if stretches is not None:
            stretches.write(f"{_HEAD}job,begin_s,end_s,tier,processors,rate\n")
        if waiting is not None:
            waiting.write(f"{_HEAD}job,submit_s,expected_s,why\n")

    def stretch(self, gang: int, begin_s: float, end_s: float, tier: str, processors: Ints, rate: float) -> None:
        """Write a stretch."""
        if self._stretches is not None:
            where = "+".join(map(str, processors.tolist()))
            self._stretches.write(f"{self._name[gang]},{begin_s!r},{end_s!r},{tier},{where},{rate!r}\n")

    def waits(self, gang: int, begin_s: float, why: str) -> None:
        """Write a gang that waits."""
        if self._waiting is not None:
            self._waiting.write(f"{self._name[gang]},{self._rows[gang][0]!r},{begin_s!r},{why}\n")

    def finished(self, gang: int, start_s: float, finish_s: float, migrations: int, kills: int, swaps: int) -> None:
        """Write a gang."""
        submit_s, width, run_s = self._rows[gang]
        self._jobs.write(
            f"{self._name[gang]},{submit_s!r},{start_s!r},{finish_s!r},{width},{run_s!r},{migrations},{kills},{swaps}\n"
        )


@contextmanager
def writing(
    trace: Trace, jobs: str | Path, stretches: str | Path | None, waiting: str | Path | None = None
) -> Iterator[Files]:
    """Give what writes the files; they are there, whole, when all has gone well."""
    with ExitStack() as stack:

        def opened(path: str | Path) -> IO[str]:
            place = stack.enter_context(replacing(path))
            return stack.enter_context(place.open("w", buffering=_BUFFER_BYTES, encoding="utf-8", newline=""))

        others = (None if path is None else opened(path) for path in (stretches, waiting))
        yield Files(trace, opened(jobs), *others)
