"""How much enclosures can earn over time, when each kind of task pays a price per second."""

import numpy as np

from fpga_pool.core.lattice.filling import Bools, best_filling
from fpga_pool.core.lattice.listing import first_fpgas
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Floats, Ints


class Capacity:
    """What all enclosures can have earned by a time: piecewise linear, as their FPGAs get ready one by one."""

    def __init__(self, problem: TaskProblem, width: Ints, held: Bools, prices: Floats) -> None:
        # (K,) the FPGAs and the price of each kind, and (K, E) which enclosure can take it.
        base = first_fpgas(problem)
        rate: dict[tuple[int, bytes], Floats] = {}
        times, more = [], []
        for e, size in enumerate(problem.enclosure_fpgas.tolist()):
            key = (size, held[:, e].tobytes())
            if key not in rate:
                can = held[:, e]
                rate[key] = best_filling(size, width[can], prices[can])
            times.append(np.sort(problem.ready_s[base[e] : base[e + 1]]))
            more.append(np.diff(rate[key]))
        time_s, step = np.concatenate(times), np.concatenate(more)
        order = np.argsort(time_s, kind="stable")
        self._time_s, first = np.unique(time_s[order], return_index=True)
        self._rate = np.cumsum(np.add.reduceat(step[order], first))
        earned = np.cumsum(self._rate[:-1] * np.diff(self._time_s))
        self._earned = np.concatenate(([0.0], earned))

    def earned_by(self, from_s: Floats, owed: Floats) -> Floats:
        """Return for each pair when `owed` can be earned at the earliest by what begins at `from_s` or later."""
        before = self._at(from_s) + owed
        after = np.searchsorted(self._earned, before, side="right") - 1
        after = np.maximum(after, 0)
        rate = self._rate[after]
        with np.errstate(divide="ignore", invalid="ignore"):
            waits_s = np.where(before > self._earned[after], (before - self._earned[after]) / rate, 0.0)
        found: Floats = np.where(owed > 0, np.maximum(self._time_s[after] + waits_s, from_s), 0.0)
        return found

    def _at(self, time_s: Floats) -> Floats:
        """Return what can have been earned by each time."""
        at = np.searchsorted(self._time_s, time_s, side="right") - 1
        inside = np.maximum(at, 0)
        earned: Floats = np.where(
            at < 0, 0.0, self._earned[inside] + self._rate[inside] * (time_s - self._time_s[inside])
        )
        return earned
