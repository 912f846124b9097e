"""Workload models calibrated to the figures printed in the two-tier paper, or fitted to a trace.

`feitelson_calibrated` has the form of Feitelson's model of 1996 (sizes of harmonic order with powers of two
emphasised, run times of two exponential stages that grow with size, repeated runs) and the paper's means;
`jann_calibrated` has ranges of sizes and run times of great variance, and the paper's means.
The parameters of the models themselves are not available.

`jann_form` fits the form of J. Jann et al.: "Modeling of Workload in MPPs", JSSPP 1997, to any trace: hyper-Erlang
times by range of sizes, with three moments matched: E[X^k] = (n+k-1)!/(n-1)! (p/l1^k + (1-p)/l2^k).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import optimize

from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.gangs.swf import Jobs
from fpga_pool.sim.gangs.trace import Trace

# ---- Fitted to a trace

#: Orders that are tried; Jann's are 1 to 7.
_ORDERS = range(1, 33)


@dataclass(frozen=True, slots=True)
class HyperErlang:
    """A mixture of two Erlang distributions of the same order."""

    order: int
    first_share: float
    #: Means of one stage of the first and of the second distribution.
    first_s: float
    second_s: float

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw `count` times in seconds."""
        stage_s = np.where(rng.random(count) < self.first_share, self.first_s, self.second_s)
        return rng.gamma(self.order, 1.0, count) * stage_s


def fit(times_s: Floats) -> HyperErlang:
    """Return the distribution of the smallest order with the first three moments of the sample.

    If there is none, or all times are equal, return the Erlang distribution with the mean and about the variance.
    """
    mean = float(times_s.mean())
    moments = [mean, float((times_s**2).mean()), float((times_s**3).mean())]
    variance = moments[1] - mean**2
    for order in _ORDERS:
        if (found := _of_order(order, moments)) is not None:
            return found
    order = max(1, min(_ORDERS[-1], round(mean**2 / variance))) if variance > 0 else _ORDERS[-1]
    return HyperErlang(order, 1.0, mean / order, mean / order)


def jann_form(trace: Trace, count: int, rng: np.random.Generator) -> Jobs:
    """Return jobs like those of the trace; gaps and run times are fitted per range of sizes, up to a power of two."""
    exponent = np.ceil(np.log2(trace.width)).astype(np.int64)
    mean_gap_s = float(trace.submit_s[-1] - trace.submit_s[0]) / max(len(trace.submit_s) - 1, 1)
    parts: list[tuple[Floats, Floats, Ints]] = []
    for value in np.unique(exponent).tolist():
        rows = np.flatnonzero(exponent == value)
        share = max(1, math.ceil(1.5 * count * len(rows) / len(trace.width)) + 8)
        gaps = np.diff(trace.submit_s[rows])
        gaps_s = fit(gaps).draw(share, rng) if len(gaps) and gaps.max() > 0 else np.full(share, mean_gap_s)
        run_s = np.minimum(fit(trace.run_s[rows]).draw(share, rng), trace.run_s[rows].max())
        parts.append((np.cumsum(gaps_s), run_s, rng.choice(trace.width[rows], share)))
    submit_s = np.concatenate([part[0] for part in parts])
    order = submit_s.argsort(kind="stable")[:count]
    return Jobs(
        submit_s=np.rint(submit_s[order]),
        run_s=np.maximum(np.rint(np.concatenate([part[1] for part in parts])[order]), 1.0),
        width=np.concatenate([part[2] for part in parts])[order],
    )


def _of_order(order: int, moments: list[float]) -> HyperErlang | None:
    m1 = moments[0] / order
    m2 = moments[1] / (order * (order + 1))
    m3 = moments[2] / (order * (order + 1) * (order + 2))
    spread = m2 - m1**2
    if spread <= 1e-12 * m2:
        return None
    total, product = (m3 - m1 * m2) / spread, (m1 * m3 - m2**2) / spread
    root = total**2 - 4 * product
    if root <= 0:
        return None
    first = (total - math.sqrt(root)) / 2
    second = (total + math.sqrt(root)) / 2
    share = (m1 - second) / (first - second)
    return HyperErlang(order, share, first, second) if first > 0 and 0 <= share <= 1 else None


# ---- Calibrated to the paper's figures

#: Section 3.1 and table 1 of the two-tier paper.
FEITELSON_MEAN_WIDTH, FEITELSON_MEAN_RUN_S, FEITELSON_SERIAL = 23.4, 2606.6, 0.18
JANN_MEAN_WIDTH, JANN_MEAN_RUN_S, JANN_SERIAL = 10.5, 11_267.0, 0.408
#: Longest run time: the limit of 18 hours of the Cornell Theory Center.
LONGEST_S: Final = 64_800.0
_POWER_OF_TWO = 20.0
_MOST_RUNS = 1000
#: Load of the generated jobs; `Trace.with_load` changes it.
_LOAD = 0.7
#: Upper ends of the ranges of sizes above 1, and the share of jobs in each of these.
_JANN_RANGES = (2, 4, 8, 16, 32, 64, 128, 256, 320)
_JANN_SHARES = (0.09, 0.13, 0.12, 0.12, 0.075, 0.035, 0.016, 0.005, 0.001)
_JANN_STAGES = (0.6, 1500.0, 33_000.0)


def feitelson_calibrated(count: int, processors: int, rng: np.random.Generator) -> Jobs:
    """Return jobs in the form of Feitelson 1996 with the mean size and run time of the two-tier paper."""
    sizes = np.arange(1, processors + 1)
    share = _feitelson_shares(sizes)
    runs_share = np.arange(1, _MOST_RUNS + 1) ** -2.5
    width = np.empty(0, np.int64)
    run_s = np.empty(0)
    while len(width) < count:
        distinct = rng.choice(sizes, count, p=share)
        short = rng.random(count) < 0.95 - 0.2 * distinct / processors
        times_s = np.minimum(rng.exponential(np.where(short, 1.0, 7.0)) * _feitelson_unit_s(share), LONGEST_S)
        runs = rng.choice(np.arange(1, _MOST_RUNS + 1), count, p=runs_share / runs_share.sum())
        width = np.concatenate((width, np.repeat(distinct, runs)))
        run_s = np.concatenate((run_s, np.repeat(times_s, runs)))
    width, run_s = width[:count], np.maximum(np.rint(run_s[:count]), 1.0)
    submit_s = _spread(rng.exponential(1.0, len(width)), width, run_s, processors)
    return Jobs(submit_s=submit_s, run_s=run_s, width=width)


def jann_calibrated(count: int, processors: int, rng: np.random.Generator) -> Jobs:
    """Return jobs in ranges of sizes like Jann 1997 with the mean size and run time of the two-tier paper."""
    lows = np.array((1, 2, *(end + 1 for end in _JANN_RANGES[:-1])))
    highs = np.minimum(np.array((1, *_JANN_RANGES)), processors)
    shares = np.array((JANN_SERIAL, *_JANN_SHARES)) * (lows <= processors)
    shares /= shares.sum()
    place = rng.choice(len(lows), count, p=shares)
    # The share of sizes that are the upper end of their range, a power of two, is chosen to meet the mean.
    middle, upper = shares @ ((lows + highs) / 2), shares @ highs
    upper_share = np.clip((JANN_MEAN_WIDTH - middle) / max(upper - middle, 1e-300), 0.0, 1.0)
    anywhere = rng.integers(lows[place], highs[place] + 1)
    width = np.where(rng.random(count) < upper_share, highs[place], anywhere)
    short_share, short_s, long_s = _JANN_STAGES
    scale_s = rng.exponential(np.where(rng.random(count) < short_share, short_s, long_s))
    run_s = np.maximum(np.rint(np.minimum(scale_s * _jann_factor(), LONGEST_S)), 1.0)
    gaps = rng.exponential(np.where(rng.random(count) < 0.9, 0.6, 4.6), count)
    return Jobs(submit_s=_spread(gaps, width, run_s, processors), run_s=run_s, width=width)


def _feitelson_shares(sizes: Ints) -> Floats:
    """Return the probability of each size: the serial share, and a falling power of the size that meets the mean."""
    whole = np.where((sizes & (sizes - 1)) == 0, _POWER_OF_TWO, 1.0)

    def shares(power: float) -> Floats:
        weights = np.where(sizes > 1, sizes**-power * whole, 0.0)
        found: Floats = weights * ((1 - FEITELSON_SERIAL) / max(float(weights.sum()), 1e-300))
        found[0] = FEITELSON_SERIAL
        return found / found.sum()

    def excess(power: float) -> float:
        return float(shares(power) @ sizes) - FEITELSON_MEAN_WIDTH

    if excess(0.0) <= 0:  # too few processors for the mean
        return shares(0.0)
    return shares(float(optimize.brentq(excess, 0.0, 10.0)))


def _feitelson_unit_s(share: Floats) -> float:
    """Return the mean of the short stage, in seconds, that gives the paper's mean run time despite the limit."""
    sizes = np.arange(1, len(share) + 1)
    short = float(share @ (0.95 - 0.2 * sizes / len(share)))

    def excess(unit_s: float) -> float:
        return short * _cut_mean(unit_s) + (1 - short) * _cut_mean(7 * unit_s) - FEITELSON_MEAN_RUN_S

    return float(optimize.brentq(excess, 1.0, LONGEST_S))


def _jann_factor() -> float:
    short_share, short_s, long_s = _JANN_STAGES

    def excess(factor: float) -> float:
        short, long = _cut_mean(factor * short_s), _cut_mean(factor * long_s)
        return short_share * short + (1 - short_share) * long - JANN_MEAN_RUN_S

    return float(optimize.brentq(excess, 0.01, 100.0))


def _cut_mean(mean_s: float) -> float:
    """Return the mean of an exponential time that is truncated to at most `LONGEST_S`."""
    return mean_s * -float(np.expm1(-LONGEST_S / mean_s))


def _spread(gaps: Floats, width: Ints, run_s: Floats, processors: int) -> Floats:
    """Return submission times in whole seconds, with gaps scaled to the model's load."""
    if len(gaps) < 2:
        return np.zeros(len(gaps))
    span_s = float((width * run_s).sum()) / (processors * _LOAD)
    gaps[0] = 0.0
    return np.rint(np.cumsum(gaps) * (span_s / gaps.sum()))
