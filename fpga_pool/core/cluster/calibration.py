"""Estimates that follow the times that subtasks take: for each type, kind of node and class of unit."""

import numpy as np

from fpga_pool.core.types import Floats

#: The latest observation counts for so much at least: a mean over about 20 where things change.
LEAST_WEIGHT = 0.05


class Calibration:
    """Running means of actual / estimated seconds of S types on K kinds of nodes; 1 until something is known.

    The estimate itself counts as one observation, and an actual time includes what interference has added.
    """

    def __init__(self, types: int, kinds: int) -> None:
        #: (S, K, 2) by which estimates are to be multiplied.
        self.factors: Floats = np.ones((types, kinds, 2))
        self._observed = np.ones((types, kinds, 2))

    def observe(self, type_: int, kind: int, unit: int, estimated_s: float, actual_s: float) -> None:
        """Learn from a subtask that has been completed; `estimated_s` is without calibration."""
        place = type_, kind, unit
        self._observed[place] += 1
        weight = max(1 / self._observed[place], LEAST_WEIGHT)
        self.factors[place] += weight * (actual_s / estimated_s - self.factors[place])
