"""Decides whether a measured value grows: its slope with standard error, robust against single steps.

A process that takes some more memory once, such as an allocator, does not grow.  Therefore a straight line with up to
two steps is fitted to medians of blocks.  A step is assumed only if it explains much more than its two parameters cost
(Bayesian information criterion).  If neighboring blocks deviate from the line in the same way, the error is increased.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Number of blocks whose medians are fitted.
BLOCKS = 24
MOST_STEPS = 2
#: Number of blocks before the first and after the last step, so that a slope is not taken for a step.
EDGE = 3
#: Least improvement of the criterion for a step, because its place is the best of many.
STRONG = 10.0
#: Largest correlation of neighbors that is assumed; beyond it a slope cannot be determined.
MOST_CORRELATED = 0.9
HOUR_S = 3600.0


@dataclass(frozen=True)
class Slope:
    """The growth of a value per hour, its standard error, and the heights of steps that were separated from it."""

    per_h: float
    error_per_h: float
    steps: tuple[float, ...] = ()

    def exceeds(self, budget_per_h: float) -> bool:
        """Return whether it exceeds a budget by more than three standard errors."""
        return self.per_h - 3 * self.error_per_h > budget_per_h


def slope(times_s: Sequence[float], values: Sequence[float]) -> Slope:
    """Fit a line with up to two steps; at least three blocks of samples are needed."""
    blocks = min(BLOCKS, len(times_s))
    times = np.array([np.median(part) for part in np.array_split(np.asarray(times_s, float), blocks)])
    medians = np.array([np.median(part) for part in np.array_split(np.asarray(values, float), blocks)])
    hours = (times - times.mean()) / HOUR_S
    columns = [np.ones(blocks), hours]
    best = _fitted(columns, medians)
    while len(columns) < 2 + MOST_STEPS:
        candidates = [[*columns, np.arange(blocks) >= place] for place in range(EDGE, blocks - EDGE + 1)]
        if not candidates:
            break
        chosen = min(candidates, key=lambda tried: _fitted(tried, medians)[0])
        tried = _fitted(chosen, medians)
        if _criterion(chosen, tried[0]) > _criterion(columns, best[0]) - STRONG:
            break
        columns, best = chosen, tried
    squares, found, covariance = best
    alike = _correlation(medians - np.column_stack(columns) @ found)
    error = math.sqrt((1 + alike) / (1 - alike)) * math.sqrt(
        covariance[1, 1] * squares / max(blocks - _parameters(columns), 1)
    )
    return Slope(float(found[1]), error, tuple(float(height) for height in found[2:]))


def _correlation(left: NDArray[np.float64]) -> float:
    """Return the correlation of neighbors, corrected for the bias of short series; 0 to MOST_CORRELATED."""
    squares = float(np.sum(left**2))
    if squares < 1e-9:
        return 0.0
    found = float(np.sum(left[1:] * left[:-1])) / squares
    return min(max(found + (1 + 4 * found) / len(left), 0.0), MOST_CORRELATED)


def _fitted(
    columns: Sequence[NDArray[np.float64]], values: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Fit; return the residual sum of squares, the coefficients, and their covariance for noise of variance 1."""
    matrix = np.column_stack(columns).astype(float)
    inverse = np.linalg.pinv(matrix.T @ matrix)
    found = inverse @ matrix.T @ values
    return float(np.sum((values - matrix @ found) ** 2)), found, inverse


def _parameters(columns: Sequence[NDArray[np.float64]]) -> int:
    """Return the number of parameters: a step has a place and a height."""
    return 2 * len(columns) - 2


def _criterion(columns: Sequence[NDArray[np.float64]], squares: float) -> float:
    blocks = len(columns[0])
    return blocks * math.log(max(squares / blocks, 1e-12)) + _parameters(columns) * math.log(blocks)
