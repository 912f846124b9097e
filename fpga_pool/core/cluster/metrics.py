"""Prediction of unmeasured metrics of subtasks: models that fill the gaps of a table of types and metrics.

Numpy only.  `Gaussian` is the recommended model; the others, and the paper's network (`ncf`), were compared with it.
All values are shares or scaled to about 0 to 1; a measurement is one noisy value of one metric of one type.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import Floats

_INSTALL = "pip install 'fpga_pool[learning]'"

#: Rounds of alternating regressions, and of expectation maximization.
_FACTOR_ROUNDS, _GAP_ROUNDS = 15, 20
#: Standard deviation of one measurement: measurement error, and differences between subtasks of a type.
NOISE = 0.1


class MetricModel(Protocol):
    """A model that learns from measurements one by one."""

    def observe(self, type_: int, metric: int, value: float) -> None:
        """Learn from one measurement; raise ValueError if the value is not finite."""
        ...

    def predict(self, type_: int) -> Floats:
        """Return the metrics of a type, (N,), whether measured or not."""
        ...


class CellMeans:
    """Predicts the mean of a cell's measurements; without any, that of its metric over all types and `history`."""

    def __init__(self, types: int, metrics: int, history: Floats | None = None) -> None:
        self._sums: Floats = np.zeros((types, metrics))
        self._counts: Floats = np.zeros((types, metrics))
        self._history = np.zeros((0, metrics)) if history is None else history

    def observe(self, type_: int, metric: int, value: float) -> None:
        require_finite(value)
        self._sums[type_, metric] += value
        self._counts[type_, metric] += 1

    def predict(self, type_: int) -> Floats:
        seen = self._counts > 0
        means = np.where(seen, self._sums / np.maximum(self._counts, 1), 0.0)
        known = seen.sum(axis=0) + len(self._history)
        overall = means[seen].mean() if seen.any() else 0.5
        columns = np.where(known > 0, (means.sum(axis=0) + self._history.sum(axis=0)) / np.maximum(known, 1), overall)
        filled: Floats = np.where(seen[type_], means[type_], columns)
        return filled


class Gaussian:
    """A model in which the metrics of a type are one draw from a normal distribution, measured with noise.

    The distribution of a type given its measurements has a closed form, and each update takes O(N^2).  Mean and
    covariance over types come from `history`, (H, N): the metrics of H other types, gaps are NaN.  Without history
    metrics are independent, and a measurement carries no information about other metrics.
    """

    def __init__(self, types: int, metrics: int, history: Floats | None = None, *, noise: float = NOISE) -> None:
        if noise <= 0:
            raise ValueError(f"noise: expected more than 0, got {noise}")
        mean, covariance = normal_with_gaps(np.zeros((0, metrics)) if history is None else history)
        self._variance = noise**2
        #: (S, N) means and (S, N, N) covariances of each type, given its measurements.
        self._mean: Floats = np.tile(mean, (types, 1))
        self._covariance: Floats = np.tile(covariance, (types, 1, 1))

    def observe(self, type_: int, metric: int, value: float) -> None:
        require_finite(value)
        mean, covariance = self._mean[type_], self._covariance[type_]
        column = covariance[:, metric].copy()
        gain = column / (column[metric] + self._variance)
        mean += gain * (value - mean[metric])
        covariance -= np.outer(gain, column)

    def predict(self, type_: int) -> Floats:
        mean: Floats = self._mean[type_].copy()
        return mean


class Factors:
    """Biased matrix factorization (Koren et al. 2009), fitted by alternating least squares when predictions are needed.

    value = mean + bias of the type + bias of the metric + product of two vectors of `rank`.
    """

    def __init__(
        self, types: int, metrics: int, history: Floats | None = None, *, rank: int = 3, weight: float = 0.3
    ) -> None:
        self._types, self._metrics, self._rank, self._weight = types, metrics, rank, weight
        rows = np.zeros((0, metrics)) if history is None else history
        self._cells = [
            (types + row, metric, float(rows[row, metric])) for row, metric in np.argwhere(np.isfinite(rows))
        ]
        self._rows = types + len(rows)
        self._fitted: Floats | None = None

    def observe(self, type_: int, metric: int, value: float) -> None:
        require_finite(value)
        self._cells.append((type_, metric, value))
        self._fitted = None

    def predict(self, type_: int) -> Floats:
        if self._fitted is None:
            self._fitted = self._fit()
        row: Floats = self._fitted[type_]
        return row

    def _fit(self) -> Floats:
        if not self._cells:
            return np.full((self._rows, self._metrics), 0.5)
        sums, counts = np.zeros((self._rows, self._metrics)), np.zeros((self._rows, self._metrics))
        for row, metric, value in self._cells:
            sums[row, metric] += value
            counts[row, metric] += 1
        values = sums / np.maximum(counts, 1)
        overall = sums.sum() / counts.sum()
        # A bias is a factor whose partner is 1.
        rng = np.random.default_rng(0)
        left = np.hstack([np.zeros((self._rows, 1)), np.ones((self._rows, 1)),
                          0.1 * rng.standard_normal((self._rows, self._rank))])  # fmt: skip
        right = np.hstack([np.ones((self._metrics, 1)), np.zeros((self._metrics, 1)),
                           0.1 * rng.standard_normal((self._metrics, self._rank))])  # fmt: skip
        own_left, own_right = [0, *range(2, 2 + self._rank)], [1, *range(2, 2 + self._rank)]
        for _ in range(_FACTOR_ROUNDS):
            self._solve(left, right, values - overall, counts, own_left)
            self._solve(right, left, (values - overall).T, counts.T, own_right)
        fitted: Floats = overall + left @ right.T
        return fitted

    def _solve(self, side: Floats, other: Floats, values: Floats, counts: Floats, own: list[int]) -> None:
        """Fit the columns `own` of one side by ridge regression, row by row."""
        fixed = [column for column in range(side.shape[1]) if column not in own]
        for row in range(len(side)):
            weights = counts[row]
            wanted = values[row] - other[:, fixed] @ side[row, fixed]
            features = other[:, own]
            squares = features.T @ (weights[:, None] * features) + self._weight * np.eye(len(own))
            side[row, own] = np.linalg.solve(squares, features.T @ (weights * wanted))


def normal_with_gaps(rows: Floats) -> tuple[Floats, Floats]:
    """Return mean (N,) and covariance (N, N) of rows with gaps (NaN), by expectation maximization.

    Both are shrunk a little towards a wide, independent prior, which is returned if there are no rows.
    """
    metrics = rows.shape[1]
    prior_mean, prior = np.full(metrics, 0.5), 0.3**2 * np.eye(metrics)
    mean, covariance = prior_mean, prior
    known: NDArray[np.bool_] = np.isfinite(rows)
    if not len(rows):
        return mean, covariance
    #: The prior counts as this many rows.
    own = 1.0
    for _ in range(_GAP_ROUNDS if not known.all() else 1):
        filled, spread = np.where(known, rows, 0.0), np.zeros((metrics, metrics))
        for row, seen in zip(filled, known, strict=True):
            if seen.all():
                continue
            unseen = ~seen
            gain = np.linalg.solve(
                covariance[np.ix_(seen, seen)] + 1e-6 * np.eye(int(seen.sum())), covariance[np.ix_(seen, unseen)]
            ).T
            row[unseen] = mean[unseen] + gain @ (row[seen] - mean[seen])
            spread[np.ix_(unseen, unseen)] += (
                covariance[np.ix_(unseen, unseen)] - gain @ covariance[np.ix_(seen, unseen)]
            )
        mean = (filled.sum(axis=0) + own * prior_mean) / (len(rows) + own)
        off = filled - mean
        covariance = (off.T @ off + spread + own * prior) / (len(rows) + own)
    return mean, covariance


def require_finite(value: float) -> None:
    """Raise ValueError if a measurement is not a finite number."""
    if not np.isfinite(value):
        raise ValueError(f"value: expected a finite number, got {value}")


def require_torch(name: str) -> None:
    """Raise ValueError with installation advice if torch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ValueError(f"{name} needs torch: {_INSTALL}") from None
