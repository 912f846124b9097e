"""A linear programme, some of whose variables may have to be whole numbers, written down row by row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import csr_array

from fpga_pool.core.types import Floats, Ints

#: What `milp` says where its limit is reached.
_OUT_OF_TIME = 1


@dataclass(frozen=True, slots=True)
class Found:
    """How much solutions in whole numbers gain."""

    #: None gains more; infinite where that is not known yet.
    most: float
    #: The best one found gains it; 0 where none was found.
    reached: float
    #: (N,) the variables of that one; none where none was found.
    values: Floats


class Programme:
    """Maximise gain @ x, with least <= x <= most, and rows of `at_most` and `exactly`."""

    def __init__(self, *, gain: Floats, most: Floats, least: ArrayLike = 0.0) -> None:
        self.gain, self.most = gain, most
        self.least = np.broadcast_to(np.asarray(least, dtype=float), gain.shape)
        #: Places of the variables that are whole numbers.
        self._whole: list[Ints] = []
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._floors: list[Floats] = []
        self._limits: list[Floats] = []
        self._height = 0

    def add(self, most: Floats, *, whole: bool = False) -> Ints:
        """Add variables, of whole numbers or any, that gain nothing by themselves; return their places."""
        places = np.arange(len(self.gain), len(self.gain) + len(most))
        self.gain = np.concatenate([self.gain, np.zeros(len(most))])
        self.least = np.concatenate([self.least, np.zeros(len(most))])
        self.most = np.concatenate([self.most, most])
        if whole:
            self._whole += [places]
        return places

    def at_most(self, row: Ints, column: Ints, value: ArrayLike, limit: Floats) -> None:
        """Add len(limit) rows: sum of value * x[column] over the entries, (N,) each, of a row <= its limit."""
        self._add(row, column, value, np.full(len(limit), -np.inf), limit)

    def exactly(self, row: Ints, column: Ints, value: ArrayLike, wanted: Floats) -> None:
        """Add rows as `at_most` does, of sums that must be what is wanted."""
        self._add(row, column, value, wanted, wanted)

    def _add(self, row: Ints, column: Ints, value: ArrayLike, floor: Floats, limit: Floats) -> None:
        self._rows.append(row + self._height)
        self._columns.append(column)
        self._values.append(np.broadcast_to(np.asarray(value, dtype=float), row.shape))
        self._floors.append(floor)
        self._limits.append(limit)
        self._height += len(limit)

    def _constraint(self) -> LinearConstraint:
        entries = (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns)))
        matrix = csr_array(entries, shape=(self._height, len(self.gain)))
        return LinearConstraint(matrix, np.concatenate(self._floors), np.concatenate(self._limits))

    def solve(self, time_limit_s: float | None = None) -> float | None:
        """Return the most, without regard to whole numbers; None where it is not found in time."""
        if not len(self.gain):
            return 0.0
        found = milp(
            -self.gain, constraints=self._constraint(), bounds=Bounds(self.least, self.most),
            options={} if time_limit_s is None else {"time_limit": time_limit_s},
        )  # fmt: skip
        if found.status == _OUT_OF_TIME:
            return None
        return float(-_solved(found).fun)

    def relaxed(self) -> float:
        """Return what `solve` returns, by inner points: much sooner where many solutions are alike."""
        rows = self._constraint()
        equal = rows.lb == rows.ub
        found = linprog(
            -self.gain, A_ub=rows.A[~equal], b_ub=rows.ub[~equal], A_eq=rows.A[equal], b_eq=rows.ub[equal],
            bounds=np.stack([self.least, self.most], axis=1), method="highs-ipm",
        )  # fmt: skip
        return float(-_solved(found).fun)

    def search(self, gap: float, time_limit_s: float | None = None) -> Found:
        """Look for the best solution in whole numbers until it is known but for a share `gap`, or time is over."""
        whole = np.zeros(len(self.gain), np.int64)
        for places in self._whole:
            whole[places] = 1
        found = milp(
            -self.gain, constraints=self._constraint(), bounds=Bounds(self.least, self.most), integrality=whole,
            options={"mip_rel_gap": gap} | ({} if time_limit_s is None else {"time_limit": time_limit_s}),
        )  # fmt: skip
        if found.status != _OUT_OF_TIME:
            _solved(found)
        most = found.mip_dual_bound
        return Found(
            most=np.inf if most is None or not np.isfinite(most) else float(-most),
            reached=0.0 if found.fun is None else float(-found.fun),
            values=np.zeros(0) if found.x is None else found.x,
        )


def _solved(found: OptimizeResult) -> OptimizeResult:
    if found.status != 0:
        raise ValueError(f"the linear programme has no solution: {found.message}")
    return found
