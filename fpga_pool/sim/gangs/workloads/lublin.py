"""The model of Lublin and Feitelson: sizes, run times and a daily cycle of arrivals.

U. Lublin, D. G. Feitelson: "The Workload on Parallel Supercomputers: Modeling the Characteristics of Rigid Jobs",
JPDC 63(11), 2003; the version of 1999.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.gangs.swf import Jobs

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
    middle: float
    highest: float
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
    serial=0.244, power_of_two=0.576, lowest=0.8, middle=4.5, highest=7.0, low_share=0.86,
    run_first=(4.2, 0.94), run_second=(312.0, 0.03), run_slope=-0.0054, run_intercept=0.78,
    gap=(10.2303, 0.4871), cycle=(8.1737, 3.9631), rush=1.0225,
)  # fmt: skip
BATCH: Final = Kind(
    serial=0.2927, power_of_two=0.6686, lowest=1.2, middle=5.0, highest=7.0, low_share=0.875,
    run_first=(6.57, 0.823), run_second=(639.1, 0.0156), run_slope=-0.003, run_intercept=0.6986,
    gap=(6.0415, 0.8531), cycle=(6.1271, 5.2740), rush=1.0519,
)  # fmt: skip
INTERACTIVE: Final = Kind(
    serial=0.1541, power_of_two=0.625, lowest=1.0, middle=3.0, highest=5.5, low_share=0.705,
    run_first=(3.8351, 0.6605), run_second=(7.073, 0.6856), run_slope=-0.0118, run_intercept=0.9156,
    gap=(6.5510, 0.6621), cycle=(8.9186, 3.6680), rush=0.9797,
)  # fmt: skip


def lublin(
    count: int, processors: int, rng: np.random.Generator, *, two_kinds: bool = False, scaled: bool = True
) -> Jobs:
    """Return jobs of one kind, or of batch and interactive ones, each with their own arrivals.

    `scaled` fits the sizes to the processors as the authors say: the highest stage ends at their logarithm, the middle
    is 2.5 below.  Without it the sizes are those of the model's machine of 128, wider ones drawn again.
    """
    kinds = (BATCH, INTERACTIVE) if two_kinds else (ALL,)
    streams = [_stream(count, processors, kind, rng, scaled) for kind in kinds]
    submit_s = np.concatenate([stream.submit_s for stream in streams])
    order = submit_s.argsort(kind="stable")[:count]
    return Jobs(
        submit_s=submit_s[order],
        run_s=np.concatenate([stream.run_s for stream in streams])[order],
        width=np.concatenate([stream.width for stream in streams])[order],
    )


def _stream(count: int, processors: int, kind: Kind, rng: np.random.Generator, scaled: bool) -> Jobs:
    width = _sizes(count, processors, kind, rng, scaled)
    return Jobs(submit_s=_arrivals(count, kind, rng), run_s=_run_times(width, kind, rng), width=width)


def _sizes(count: int, processors: int, kind: Kind, rng: np.random.Generator, scaled: bool) -> Ints:
    highest = math.log2(processors) if scaled else kind.highest
    middle = max(highest - 2.5, kind.lowest) if scaled else kind.middle
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
