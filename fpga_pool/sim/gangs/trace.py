"""Input and output of a simulation of gangs: columnar traces, true CPU usage, faults, metrics and files."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fpga_pool.core.gangs.gangs import Gangs
from fpga_pool.core.gangs.progress import Shares, Usage, UsageSaid, draw_shares, draw_usage, say_usage
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.gangs.tiers import IN_FRONT, Tiers
from fpga_pool.core.intervals import half_width
from fpga_pool.core.types import Floats, Ints, freeze_arrays
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.files import replacing
from fpga_pool.sim.gangs.swf import Swf, read_swf

#: Numbers are read as doubles, which do not represent all larger integers exactly.
_LARGEST_NUMBER = 2**53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """G gangs in order of submission; gangs submitted at the same time are in order of their numbers."""

    #: (G,) numbers, as in the file.
    job: Ints
    submit_s: Floats
    #: (G,) run time on dedicated processors, and requested time.
    run_s: Floats
    estimate_s: Floats
    width: Ints
    #: (G,) number of its user; -1 = unknown.
    user: Ints

    def __post_init__(self) -> None:
        freeze_arrays(self, real=("submit_s", "run_s", "estimate_s"), whole=("job", "width", "user"))
        if (np.diff(self.submit_s) < 0).any():
            raise ValueError("submit_s: expected gangs in order of submission")
        if (self.estimate_s < self.run_s).any() or (self.run_s <= 0).any():
            raise ValueError("estimate_s, run_s: expected run times above 0 and estimates of at least the run time")

    def load(self, processors: int) -> float:
        """Return the work divided by the capacity of the processors between the first and the last submission."""
        span_s = float(self.submit_s[-1] - self.submit_s[0]) if len(self.job) else 0.0
        work_s = float((self.width * self.run_s).sum())
        return work_s / (processors * span_s) if span_s > 0 else 0.0

    def with_load(self, load: float, processors: int) -> "Trace":
        """Return the trace with all times between submissions scaled to this load (section 3.3)."""
        now = self.load(processors)
        if now <= 0:
            raise ValueError("load: all jobs of this trace are submitted at the same time")
        first_s = self.submit_s[:1]
        return replace(self, submit_s=first_s + (self.submit_s - first_s) * (now / load))


def read_trace(path: str | Path, processors: int) -> tuple[Trace, int]:
    """Return the gangs of a file that these processors can run, and the number of gangs left out."""
    swf = read_swf(path)
    job = swf.column("job")
    numbers, places = np.unique(job, return_index=True)
    if len(numbers) < len(job):
        twice = np.setdiff1d(np.arange(len(job)), places)[0]
        raise InvalidInput(f"{path}: duplicate job {job[twice]:g}")
    for name in ("job", "user"):
        if not (np.abs(swf.column(name)) <= _LARGEST_NUMBER).all():
            raise InvalidInput(f"{path}: {name} numbers must be at most {_LARGEST_NUMBER}")
    return trace_of(swf, processors)


def trace_of(swf: Swf, processors: int) -> tuple[Trace, int]:
    """Return the gangs of these lines that these processors can run, and the number of lines left out.

    Lines without a size, a run time or a time of submission, and gangs that are too wide, are left out.
    """
    got = swf.column("processors")
    width = np.where(got > 0, got, swf.column("requested_processors"))
    run_s, submit_s = swf.column("run_s"), swf.column("submit_s")
    fits = (width >= 1) & (width <= processors) & (run_s > 0) & (submit_s >= 0)
    order = np.flatnonzero(fits)
    order = order[np.lexsort((swf.column("job")[order], submit_s[order]))]
    trace = Trace(
        job=swf.column("job")[order].astype(np.int64),
        submit_s=submit_s[order],
        run_s=run_s[order],
        estimate_s=np.maximum(swf.column("requested_s"), run_s)[order],
        width=width[order].astype(np.int64),
        user=swf.column("user")[order].astype(np.int64),
    )
    return trace, len(width) - len(order)


def draw(
    trace: Trace,
    params: ProgressParams,
    rng: np.random.Generator,
    *,
    per_process: bool = False,
    said: UsageSaid | None = None,
) -> tuple[Gangs, Shares]:
    """Draw the properties of gangs that a trace does not contain; they are the same for all policies for equal seeds.

    The true usage does not depend on `said`, which describes how usage is stated.
    """
    usage = draw_usage(trace.width, params, rng, per_process=per_process)
    shares = draw_shares(trace.width, params, rng)
    if said is None or said == UsageSaid():
        return Gangs(width=trace.width, estimate_s=trace.estimate_s, usage=usage, user=trace.user), shares
    of = np.repeat(np.arange(len(trace.width)), trace.width) if per_process else np.arange(len(trace.width))
    # The busiest process of a gang is not known either, so processes are in the order of their stated usage.
    usage = usage[np.lexsort((rng.random(len(of)), of))]
    known = say_usage(usage, trace.width, said, params, rng)
    order = np.lexsort((-known, of))
    gangs = Gangs(width=trace.width, estimate_s=trace.estimate_s, usage=known[order], user=trace.user)
    return gangs, replace(shares, usage=usage[order])


# ---- True usage


class TrueUsage:
    """True usage of processes, if it differs from the usage stated for their gangs."""

    def __init__(self, view: Tiers, usage: Floats) -> None:
        self._view = view
        per_process = len(usage) != len(view.width)
        self._of = np.split(usage, np.cumsum(view.width)[:-1]) if per_process else usage.tolist()
        self.usage = Usage(np.zeros(view.processors), np.zeros(view.processors))

    def enter(self, gang: int) -> None:
        """Add the usage of a gang that has been placed on its processors."""
        self._tier(gang)[self._view.placed[gang]] = self._of[gang]

    def leave(self, gang: int) -> None:
        """Remove the usage of a gang that is about to leave its processors, if it has any."""
        self._tier(gang)[self._view.placed[gang]] = 0.0

    def _tier(self, gang: int) -> Floats:
        return self.usage.front if self._view.tier[gang] == IN_FRONT else self.usage.behind


# ---- Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Some processors are not available for an interval; gangs on any of them start over elsewhere."""

    begin_s: float
    end_s: float
    processors: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A process of a gang fails, if the gang runs; the gang starts over."""

    at_s: float
    gang: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """The tenant cancels a gang, if it has arrived and not ended."""

    at_s: float
    gang: int


Fault = Outage | Failure | Cancellation


class OutageEnd(NamedTuple):
    """The processors of an outage are available again."""

    processors: Sequence[int]


def timeline(faults: Sequence[Fault]) -> list[tuple[float, Fault | OutageEnd]]:
    """Return the faults and the ends of outages with their times, in order of time."""
    events: list[tuple[float, Fault | OutageEnd]] = []
    for fault in faults:
        if isinstance(fault, Outage):
            events += [(fault.begin_s, fault), (fault.end_s, OutageEnd(fault.processors))]
        else:
            events.append((fault.at_s, fault))
    return sorted(events, key=lambda event: event[0])


# ---- Outcome of a simulation of gangs: arrays, the metrics of section 3.3 (two-tier paper), and files (doc/formats)


class Sink:
    """Receiver of the outcome during the simulation; this base class ignores everything."""

    def stretch(self, gang: int, begin_s: float, end_s: float, tier: str, processors: Ints, rate: float) -> None:
        """Receive a stretch, an interval of constant rate; a `kill` has no length."""

    def finished(self, gang: int, start_s: float, finish_s: float, migrations: int, kills: int, swaps: int) -> None:
        """Receive a gang that has done its work."""

    def waits(self, gang: int, begin_s: float, why: str) -> None:
        """Receive why a newly arrived gang waits, and when it is expected to get to the foreground."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of a trace."""

    #: (G,) when each gang first ran (below 0 = never), and when it was done or cancelled.
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

#: Shorter run times are replaced by this in the bounded slowdown.
TAU_S = 10.0
_BATCHES = 20
#: Share of the gangs at either end that is excluded from batch means, as the machine fills or empties.
_ENDS = 0.1


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean by the method of batch means, and half the width of its 95 % confidence interval."""

    mean: float
    half_width: float


def response_s(trace: Trace, outcome: Outcome) -> Floats:
    """Return the time from the submission of each gang to its end."""
    return outcome.finish_s - trace.submit_s


def bounded_slowdown(trace: Trace, outcome: Outcome) -> Floats:
    """Return the ratio of response time to run time of each gang; run times shorter than `TAU_S` count as that."""
    return np.maximum(1.0, response_s(trace, outcome) / np.maximum(TAU_S, trace.run_s))


def batch_means(values: Floats) -> Interval:
    """Return the mean of values in order of submission, without both ends; NaN where there are too few values."""
    ends = int(len(values) * _ENDS)
    middle = values[ends : len(values) - ends]
    if len(middle) < 2 * _BATCHES:
        return Interval(float(middle.mean()) if len(middle) else float("nan"), float("nan"))
    means = np.array([batch.mean() for batch in np.array_split(middle, _BATCHES)])
    return Interval(float(middle.mean()), half_width(means))


def utilisation(processors: int, trace: Trace, outcome: Outcome) -> tuple[float, float]:
    """Return the share of processor time, from first submission to last end, with a process in each tier."""
    if not len(trace.job):
        return 0.0, 0.0
    span_s = processors * (float(outcome.finish_s.max()) - float(trace.submit_s[0]))
    return outcome.front_busy_s / span_s, outcome.behind_busy_s / span_s


# ---- Files

_HEAD = "# format_version=1\n"
_BUFFER_BYTES = 1 << 20


class Files(Sink):
    """Writes a row for each gang that is done and, optionally, for each stretch and each waiting gang."""

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
        if self._stretches is not None:
            where = "+".join(map(str, processors.tolist()))
            self._stretches.write(f"{self._name[gang]},{begin_s!r},{end_s!r},{tier},{where},{rate!r}\n")

    def waits(self, gang: int, begin_s: float, why: str) -> None:
        if self._waiting is not None:
            self._waiting.write(f"{self._name[gang]},{self._rows[gang][0]!r},{begin_s!r},{why}\n")

    def finished(self, gang: int, start_s: float, finish_s: float, migrations: int, kills: int, swaps: int) -> None:
        submit_s, width, run_s = self._rows[gang]
        self._jobs.write(
            f"{self._name[gang]},{submit_s!r},{start_s!r},{finish_s!r},{width},{run_s!r},{migrations},{kills},{swaps}\n"
        )


@contextmanager
def writing(
    trace: Trace, jobs: str | Path, stretches: str | Path | None, waiting: str | Path | None = None
) -> Iterator[Files]:
    """Yield the sink that writes the files, which replace existing ones at the end, if no error is raised."""
    with ExitStack() as stack:

        def opened(path: str | Path) -> IO[str]:
            place = stack.enter_context(replacing(path))
            return stack.enter_context(place.open("w", buffering=_BUFFER_BYTES, encoding="utf-8", newline=""))

        others = (None if path is None else opened(path) for path in (stretches, waiting))
        yield Files(trace, opened(jobs), *others)
