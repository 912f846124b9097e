"""Whether a measured value grows: its slope and the standard error of that, robust against single steps.

A process that takes a page more once, such as an allocator, does not grow.  So a straight line with up to two steps is
fitted to medians of blocks; a step is assumed only where it explains much more than its two parameters cost (Bayesian
information criterion).  Where blocks that follow each other differ from the line alike, the error is larger for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Of so many blocks the median is taken.
BLOCKS = 24
MOST_STEPS = 2
#: Before the first and after the last step so many blocks are left, so that a slope is not taken for a step.
EDGE = 3
#: By so much the criterion has to be better with a step: its place is the best of many.
STRONG = 10.0
#: Beyond this correlation of neighbours nothing can be said of a slope.
MOST_CORRELATED = 0.9
HOUR_S = 3600.0


@dataclass(frozen=True)
class Slope:
    """How much a value grows in an hour, the standard error of that, and the steps that were left out."""

    per_h: float
    error_per_h: float
    steps: tuple[float, ...] = ()

    def exceeds(self, budget_per_h: float) -> bool:
        """Whether it is above a budget by more than three standard errors."""
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
    """Return that of neighbours, without the bias that a short series has; at least 0."""
    squares = float(np.sum(left**2))
    if squares < 1e-9:
        return 0.0
    found = float(np.sum(left[1:] * left[:-1])) / squares
    return min(max(found + (1 + 4 * found) / len(left), 0.0), MOST_CORRELATED)


def _fitted(
    columns: Sequence[NDArray[np.float64]], values: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Fit; return the sum of squares that is left, the coefficients, and their covariance without noise."""
    matrix = np.column_stack(columns).astype(float)
    inverse = np.linalg.pinv(matrix.T @ matrix)
    found = inverse @ matrix.T @ values
    return float(np.sum((values - matrix @ found) ** 2)), found, inverse


def _parameters(columns: Sequence[NDArray[np.float64]]) -> int:
    """Return how many there are: a step has a place and a height."""
    return 2 * len(columns) - 2


def _criterion(columns: Sequence[NDArray[np.float64]], squares: float) -> float:
    blocks = len(columns[0])
    return blocks * math.log(max(squares / blocks, 1e-12)) + _parameters(columns) * math.log(blocks)
