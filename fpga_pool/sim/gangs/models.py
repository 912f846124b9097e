"""The models of workloads, by name, and traces made by them with users' estimates."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from scipy import special

from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.gangs.calibrated import LONGEST_S, feitelson_calibrated, jann_calibrated
from fpga_pool.sim.gangs.swf import Jobs, to_swf
from fpga_pool.sim.gangs.trace import Trace, trace_of

# ---- The model of Lublin and Feitelson: sizes, run times and a daily cycle of arrivals

# U. Lublin, D. G. Feitelson: "The Workload on Parallel Supercomputers: Modeling the Characteristics of Rigid Jobs",
# JPDC 63(11), 2003; the version of 1999.

_BUCKET_S = 1800.0
_BUCKETS = 48
#: Natural logarithms of seconds beyond which a draw is repeated.
_LONGEST_LOG, _LONGEST_GAP_LOG = 12.0, 13.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The parameters of one kind of jobs; gamma distributions as (shape, scale)."""

    serial: float
    power_of_two: float
    #: Two uniform stages of the logarithm (base 2) of the size: the lower one with probability `low_share`.
    lowest: float
    low_share: float
    #: Of the logarithm of the run time; the first with probability slope * size + intercept.
    run_first: tuple[float, float]
    run_second: tuple[float, float]
    run_slope: float
    run_intercept: float
    #: Of the logarithm of the points between arrivals, the daily cycle, and how many more arrive at its rush hours.
    gap: tuple[float, float]
    cycle: tuple[float, float]
    rush: float


ALL: Final = Kind(
    serial=0.244, power_of_two=0.576, lowest=0.8, low_share=0.86,
    run_first=(4.2, 0.94), run_second=(312.0, 0.03), run_slope=-0.0054, run_intercept=0.78,
    gap=(10.2303, 0.4871), cycle=(8.1737, 3.9631), rush=1.0225,
)  # fmt: skip
BATCH: Final = Kind(
    serial=0.2927, power_of_two=0.6686, lowest=1.2, low_share=0.875,
    run_first=(6.57, 0.823), run_second=(639.1, 0.0156), run_slope=-0.003, run_intercept=0.6986,
    gap=(6.0415, 0.8531), cycle=(6.1271, 5.2740), rush=1.0519,
)  # fmt: skip
INTERACTIVE: Final = Kind(
    serial=0.1541, power_of_two=0.625, lowest=1.0, low_share=0.705,
    run_first=(3.8351, 0.6605), run_second=(7.073, 0.6856), run_slope=-0.0118, run_intercept=0.9156,
    gap=(6.5510, 0.6621), cycle=(8.9186, 3.6680), rush=0.9797,
)  # fmt: skip


def lublin(count: int, processors: int, rng: np.random.Generator, *, two_kinds: bool = False) -> Jobs:
    """Return jobs of one kind, or of batch and interactive ones, each with their own arrivals.

    The sizes fit the processors as the authors say: the highest stage ends at their logarithm, the middle is 2.5 below.
    """
    kinds = (BATCH, INTERACTIVE) if two_kinds else (ALL,)
    streams = [_stream(count, processors, kind, rng) for kind in kinds]
    submit_s = np.concatenate([stream.submit_s for stream in streams])
    order = submit_s.argsort(kind="stable")[:count]
    return Jobs(
        submit_s=submit_s[order],
        run_s=np.concatenate([stream.run_s for stream in streams])[order],
        width=np.concatenate([stream.width for stream in streams])[order],
    )


def _stream(count: int, processors: int, kind: Kind, rng: np.random.Generator) -> Jobs:
    width = _sizes(count, processors, kind, rng)
    return Jobs(submit_s=_arrivals(count, kind, rng), run_s=_run_times(width, kind, rng), width=width)


def _sizes(count: int, processors: int, kind: Kind, rng: np.random.Generator) -> Ints:
    highest = math.log2(processors)
    middle = max(highest - 2.5, kind.lowest)
    width = np.zeros(count, np.int64)
    left = np.arange(count)
    while len(left):
        choice, stage, within = rng.random((3, len(left)))
        low = stage <= kind.low_share
        begin, end = np.where(low, kind.lowest, middle), np.where(low, middle, highest)
        exponent = begin + (end - begin) * within
        whole = choice <= kind.serial + kind.power_of_two
        exponent = np.where(whole, np.floor(exponent + 0.5), exponent)
        found = np.floor(2.0**exponent + 0.5).astype(np.int64)
        width[left] = np.where(choice <= kind.serial, 1, found)
        left = left[width[left] > processors]
    return width


def _run_times(width: Ints, kind: Kind, rng: np.random.Generator) -> Floats:
    """Return whole seconds, 1 at least."""
    first_share = np.clip(kind.run_slope * width + kind.run_intercept, 0.0, 1.0)
    logarithm = np.zeros(len(width))
    left = np.arange(len(width))
    while len(left):
        first = rng.random(len(left)) <= first_share[left]
        drawn = np.where(first, rng.gamma(*kind.run_first, len(left)), rng.gamma(*kind.run_second, len(left)))
        logarithm[left] = drawn
        left = left[drawn > _LONGEST_LOG]
    return np.maximum(np.floor(np.exp(logarithm)), 1.0)


def _arrivals(count: int, kind: Kind, rng: np.random.Generator) -> Floats:
    """Return times of arrival, from midnight on; points of the gaps are used up by the buckets of the day."""
    weights = bucket_weights(kind).tolist()
    gaps = rng.gamma(kind.gap[0] * kind.rush, kind.gap[1], count)
    while len(far := np.flatnonzero(gaps > _LONGEST_GAP_LOG)):
        gaps[far] = rng.gamma(kind.gap[0] * kind.rush, kind.gap[1], len(far))
    points, bucket, before = 0.0, 0, 0.0
    now_s = 0.0
    times_s = np.empty(count)
    for i, more in enumerate((np.exp(gaps) / _BUCKET_S).tolist()):
        points += more
        while points > weights[bucket]:
            points -= weights[bucket]
            bucket = (bucket + 1) % _BUCKETS
            now_s += _BUCKET_S
        part = points / weights[bucket]
        now_s += _BUCKET_S * (part - before)
        before = part
        times_s[i] = now_s
    return np.floor(times_s)


def bucket_weights(kind: Kind) -> Floats:
    """Return the relative rate of arrivals in each half hour of the day, from midnight on; their mean is 1."""
    day = np.arange(11, 59)
    shape, scale = kind.cycle
    after, before = (special.gammainc(shape, edge / scale) for edge in (day + 0.5, day - 0.5))
    weights = np.empty(_BUCKETS)
    weights[(day - 1) % _BUCKETS] = after - before
    return weights / weights.mean()


# ---- All models by name

Model = Callable[[int, int, np.random.Generator], Jobs]

#: Percent of the gangs that ask for the longest time, tried in turn: the model's own, then more if too many are long.
_LONGEST_PERCENT = (None, 40.0, 60.0, 80.0)


#: Models by name.
MODELS: Mapping[str, Model] = {
    "feitelson_calibrated": feitelson_calibrated,
    "jann_calibrated": jann_calibrated,
    "lublin": lublin,
    "lublin_two_kinds": partial(lublin, two_kinds=True),
}


def synthetic(model: str, count: int, processors: int, seed: int) -> Trace:
    """Return a trace by a model, no run longer than 18 hours, with the estimates of Tsafrir 2005."""
    jobs = MODELS[model](count, processors, np.random.default_rng(seed))
    run_s = np.minimum(jobs.run_s, LONGEST_S)
    limited = Jobs(submit_s=jobs.submit_s, run_s=run_s, width=jobs.width)
    trace, _ = trace_of(to_swf(limited, _estimates(run_s, seed), model, processors), processors)
    return trace


def _estimates(run_s: Floats, seed: int) -> Floats:
    for longest_percent in _LONGEST_PERCENT[:-1]:
        try:
            return tsafrir(run_s, LONGEST_S, np.random.default_rng((seed, 1)), longest_percent=longest_percent)
        except ValueError:
            continue
    return tsafrir(run_s, LONGEST_S, np.random.default_rng((seed, 1)), longest_percent=_LONGEST_PERCENT[-1])


# ---- Users' run-time estimates: few round values, most of them shared by many jobs

# D. Tsafrir, Y. Etsion, D. G. Feitelson: "Modeling User Runtime Estimates", JSSPP 2005.

_MINUTE_S, _HOUR_S = 60, 3600
_HEADS = 20
#: Number of distinct estimates by number of jobs.
_VALUES = ((0, 20, 200, 1000, 10_000, 70_000, 250_000), (0, 10, 20, 35, 90, 340, 565))
#: What users write, below the longest that is allowed.
_ROUND_S = (
    *(minutes * _MINUTE_S for minutes in (5, 10, 15, 20, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18)),
)
#: Where that is not enough, multiples of these.  The last is ours: for the longest times below 100 minutes.
_STEPS_S = (
    *(hours * _HOUR_S for hours in (200, 100, 50, 10, 5, 2, 1)),
    *(minutes * _MINUTE_S for minutes in (20, 10, 5, 1)),
)
#: Share of all jobs, in percent, that the head values have together.
_HEADS_PERCENT, _TAIL_PERCENT = 89.0, 11.0
#: By rank of the head times in order (the longest first, then rising): their popularity in four logs.
_POPULARITY = (
    (3, 1, 1, 1), (1, 3, 4, 6), (4, 4, 10, 5), (17, 2, 14, 3), (13, 12, 20, 7), (7, 9, 2, 2), (8, 8, 3, 18),
    (18, 18, 7, 19), (2, 6, 12, 4), (6, 7, 6, 11), (16, 11, 19, 20), (10, 20, 5, 9), (5, 16, 18, 10), (15, 5, 16, 14),
    (14, 14, 9, 13), (19, 13, 17, 16), (11, 10, 15, 15), (12, 15, 13, 17), (9, 17, 8, 8), (20, 19, 11, 12),
)  # fmt: skip
#: A tail value that another one has already is shifted by the first of these that helps.
_SHIFTS_S = (0, 30, -30, 20, -20, 10, -10)


def tsafrir(
    run_s: Floats, longest_s: float, rng: np.random.Generator, *, longest_percent: float | None = None
) -> Floats:
    """Return an estimate for each job, no less than its run time; no run time may exceed `longest_s`.

    `longest_percent` is the share of jobs that ask for the longest time, where it is known.
    """
    if longest_s < _HOUR_S:
        raise ValueError(f"longest_s: expected an hour or more, got {longest_s!r}")
    if len(run_s) and run_s.max() > longest_s:
        raise ValueError(f"run_s: a job runs for {run_s.max():g} s, the maximum is {longest_s:g} s")
    count = len(run_s)
    values = max(_HEADS, round(float(np.interp(count, *_VALUES))))
    heads_s = head_times(int(longest_s))
    heads_percent = head_sizes(longest_percent)[_ranks_of_times(rng) - 1]
    tail_s = _tail_times(values, int(longest_s), heads_s)
    tail_percent = _tail_sizes(values - _HEADS)
    rng.shuffle(tail_percent)
    times_s = np.concatenate((heads_s, tail_s))
    counts = _counts(np.concatenate((heads_percent, tail_percent[: len(tail_s)])), count)
    return _assign(run_s, np.repeat(times_s.astype(float), counts), rng)


def head_times(longest_s: int) -> Ints:
    """Return the 20 values that most users choose: the longest first, then rising."""
    heads = [time_s for time_s in _ROUND_S if time_s < longest_s]
    for step_s in _STEPS_S:
        for time_s in range(longest_s // step_s * step_s, 0, -step_s):
            if len(heads) < _HEADS - 1 and time_s not in heads and time_s != longest_s:
                heads.append(time_s)
    return np.array([longest_s, *sorted(heads)])


def head_sizes(longest_percent: float | None = None) -> Floats:
    """Return the percentages of jobs of the 20 head values, falling; the longest time's may be known."""
    rank = np.arange(2, _HEADS + 1)
    others = 14.0491 * np.exp(-0.177531 * rank) + 0.462513
    if longest_percent is None:
        return np.concatenate(([_HEADS_PERCENT - others.sum()], others))
    others *= (_HEADS_PERCENT - longest_percent) / others.sum()
    return -np.sort(-np.concatenate(([longest_percent], others)))


def _ranks_of_times(rng: np.random.Generator) -> Ints:
    """Return the rank in popularity of each head time: 1 for the longest, the others drawn from the logs' ranks."""
    last = {rank: place for place, row in enumerate(_POPULARITY) for rank in row}
    open_ranks = set(range(1, _HEADS + 1))
    pool: list[int] = []
    chosen = []
    for place, row in enumerate(_POPULARITY):
        pool += [rank for rank in row if rank in open_ranks]
        due = [rank for rank in open_ranks if last[rank] <= place]
        if place == 0:
            rank = 1
        elif due:
            rank = min(due)
        else:
            first, second = rng.integers(len(pool), size=2)
            rank = min(pool[first], pool[second])
        chosen.append(rank)
        open_ranks.discard(rank)
        pool = [other for other in pool if other != rank]
    return np.array(chosen)


def _tail_times(values: int, longest_s: int, heads_s: Ints) -> Ints:
    """Return the other values, each unlike all before; those that collide with all shifts are dropped."""
    tail = values - _HEADS
    bend = 1 + 12.1039 * values**-0.6026
    taken = set(heads_s.tolist())
    found = []
    for i in range(1, tail + 1):
        x = i / tail
        time_s = round(longest_s * (bend - 1) * x / (bend - x) / _MINUTE_S) * _MINUTE_S
        for shift_s in _SHIFTS_S:
            if 0 < time_s + shift_s < longest_s and time_s + shift_s not in taken:
                taken.add(time_s + shift_s)
                found.append(time_s + shift_s)
                break
    return np.array(found, np.int64)


def _tail_sizes(tail: int) -> Floats:
    sizes = 795.6 * np.arange(_HEADS + 1.0, _HEADS + 1 + tail) ** -2.267
    return sizes * (_TAIL_PERCENT / sizes.sum()) if tail else sizes


def _counts(percent: Floats, count: int) -> Ints:
    """Return how many jobs have each value; what rounding changes is corrected on the most frequent ones."""
    counts = np.maximum(1, np.rint(percent * count / 100).astype(np.int64))
    by_size = np.argsort(-counts, kind="stable")
    at = 0
    while (excess := int(counts.sum()) - count) != 0:
        place = by_size[at % len(by_size)]
        counts[place] += -1 if excess > 0 and counts[place] > 0 else 1 if excess < 0 else 0
        at += 1
    return counts


def _assign(run_s: Floats, estimates_s: Floats, rng: np.random.Generator) -> Floats:
    """Give each job, the longest first, one of the estimates left that it does not exceed, at random."""
    estimates = np.sort(estimates_s)[::-1].copy()
    order = np.argsort(-run_s, kind="stable")
    # Taken ones are replaced by the estimate at the front, so those left are in order still where the search looks.
    highest = np.searchsorted(-estimates, -run_s[order], "right") - 1
    found = np.empty(len(run_s))
    left: list[float] = estimates.tolist()
    draws: list[float] = rng.random(len(run_s)).tolist()
    for place, (job, run, last, draw) in enumerate(
        zip(order.tolist(), run_s[order].tolist(), highest.tolist(), draws, strict=True)
    ):
        if left[place] < run or last < place:
            raise ValueError(
                "run_s: too many long jobs for the model; increase the longest run time, or the share of jobs that "
                "request it"
            )
        at = place + int(draw * (last - place + 1))
        found[job] = left[at]
        left[at] = left[place]
    return found
