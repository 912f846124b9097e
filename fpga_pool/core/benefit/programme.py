"""A linear programme, written down row by row."""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import csr_array

from fpga_pool.core.types import Floats, Ints

#: What `linprog` says where its limit is reached.
_OUT_OF_TIME = 1


class Programme:
    """Maximise gain @ x, with least <= x <= most, and rows of `at_most`."""

    def __init__(self, *, gain: Floats, most: Floats, least: ArrayLike = 0.0) -> None:
        self.gain, self.most = gain, most
        self.least = np.broadcast_to(np.asarray(least, dtype=float), gain.shape)
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._limits: list[Floats] = []
        self._height = 0

    def at_most(self, row: Ints, column: Ints, value: ArrayLike, limit: Floats) -> None:
        """Add len(limit) rows: sum of value * x[column] over the entries, (N,) each, of a row <= its limit."""
        self._rows.append(row + self._height)
        self._columns.append(column)
        self._values.append(np.broadcast_to(np.asarray(value, dtype=float), row.shape))
        self._limits.append(limit)
        self._height += len(limit)

    @property
    def limits(self) -> Floats:
        """Right-hand sides of all rows."""
        return np.concatenate(self._limits)

    @cached_property
    def matrix(self) -> csr_array:
        """Left-hand sides of all rows, (rows, variables)."""
        entries = (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns)))
        return csr_array(entries, shape=(self._height, len(self.gain)))

    def solve(self, time_limit_s: float | None = None) -> float | None:
        """Return the maximum; None where it is not found in time."""
        if not len(self.gain):
            return 0.0
        bounds = np.column_stack([self.least, self.most])
        found = linprog(
            -self.gain, A_ub=self.matrix, b_ub=self.limits, bounds=bounds, method="highs-ds",
            options={} if time_limit_s is None else {"time_limit": time_limit_s},
        )  # fmt: skip
        if found.status == _OUT_OF_TIME:
            return None
        if found.status != 0:
            raise ValueError(f"the linear programme has no solution: {found.message}")
        return float(-found.fun)
