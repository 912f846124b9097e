"""The form of Jann's model, fitted to any trace: hyper-Erlang times by range of sizes, three moments matched.

J. Jann et al.: "Modeling of Workload in MPPs", JSSPP 1997.  E[X^k] = (n+k-1)!/(n-1)! (p/l1^k + (1-p)/l2^k).
"""

import math
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.gangs.trace import Trace
from fpga_pool.sim.gangs.workloads.job import Jobs

#: Orders that are tried; Jann's are 1 to 7.
_ORDERS = range(1, 33)


@dataclass(frozen=True, slots=True)
class HyperErlang:
    """One of two Erlang distributions of a common order."""

    order: int
    first_share: float
    #: Means of one stage of the first and of the second.
    first_s: float
    second_s: float

    def moment(self, k: int) -> float:
        """Return E[X^k]."""
        stages = math.prod(range(self.order, self.order + k))
        return stages * (self.first_share * self.first_s**k + (1 - self.first_share) * self.second_s**k)

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Return times."""
        stage_s = np.where(rng.random(count) < self.first_share, self.first_s, self.second_s)
        return rng.gamma(self.order, 1.0, count) * stage_s


def fit(times_s: Floats) -> HyperErlang:
    """Return the distribution of least order with the first three moments of the sample.

    Where none has them, or all times are alike, the Erlang distribution with the mean and nearly the variance.
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
    """Return jobs like those of the trace: by range of sizes up to powers of two, times between and run times."""
    exponent = np.ceil(np.log2(trace.width)).astype(np.int64)
    parts: list[tuple[Floats, Floats, Ints]] = []
    for value in np.unique(exponent).tolist():
        rows = np.flatnonzero(exponent == value)
        share = max(1, math.ceil(1.5 * count * len(rows) / len(trace.width)) + 8)
        gaps = np.diff(trace.submit_s[rows])
        gaps_s = fit(gaps).draw(share, rng) if len(gaps) and gaps.max() > 0 else np.full(share, _mean_gap_s(trace))
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


def _mean_gap_s(trace: Trace) -> float:
    return float(trace.submit_s[-1] - trace.submit_s[0]) / max(len(trace.submit_s) - 1, 1)
