"""Time models fitted to observed runs.

The makespan paper, section 2: "a linear regression method can be used to predict the required processing time of each
request on a particular FPGA hardware".  The regression minimizes the squared *relative* error, because job sizes span
several orders of magnitude, and for a planner an error of 10 % matters as much for a small job as for a large one.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.core.types import Floats, floats

#: Shorter durations count as this long: relative errors are meaningless below the resolution of the clocks.
SHORTEST_S = 1e-6
#: Minimum of the prior's larger anchor size; without it a refit from tiny inputs could not separate `a_s` from
#: `b_s_per_byte`.
LEAST_ANCHOR_BYTES = 2.0**20


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model, and its errors on the runs to which it was fitted."""

    model: TimeModel
    #: Number of observed runs.
    samples: int
    #: Mean and largest of |predicted - observed| / observed.
    mean_relative_error: float
    worst_relative_error: float


def fit(input_bytes: ArrayLike, seconds: ArrayLike) -> Fit:
    """Fit a model to N >= 1 observed runs, given as (N,) sizes and (N,) durations.

    If all runs have the same size, the two coefficients cannot be separated: the time is then assumed proportional to
    the size, or constant if that size is zero.
    """
    sizes, durations = _observations(input_bytes, seconds)
    if not len(sizes):
        raise ValueError("seconds: no runs to fit a model to")
    scale_s = np.maximum(durations, SHORTEST_S)
    if np.ptp(sizes) > 0:
        model = _least_squares(sizes, durations, 1.0 / scale_s)
    elif sizes[0] > 0:
        model = TimeModel(0.0, _mean_ratio(durations, scale_s) / float(sizes[0]))
    else:
        model = TimeModel(_mean_ratio(durations, scale_s), 0.0)
    return _judged(model, sizes, durations)


def refit(prior: TimeModel, input_bytes: ArrayLike, seconds: ArrayLike, prior_weight: float) -> Fit:
    """Correct a model by observed runs, (N,) sizes and (N,) durations; the prior counts as `prior_weight` runs.

    A weight of 0 ignores the prior; without any runs the prior is returned unchanged.  The prior enters as two
    pseudo-observations around the observed sizes, so it also determines what a single observed size cannot.  Each
    residual is relative to the larger of the observed and the prior's time, which bounds the influence of an outlier,
    however slow or fast.
    """
    if not (math.isfinite(prior_weight) and prior_weight >= 0):
        raise ValueError(f"prior_weight must be finite and >= 0, found {prior_weight}")
    sizes, durations = _observations(input_bytes, seconds)
    if not len(sizes):
        return Fit(prior, 0, 0.0, 0.0)
    if prior_weight == 0:
        return fit(sizes, durations)
    anchors = np.array([sizes.min() / 2, max(2 * sizes.max(), LEAST_ANCHOR_BYTES)])
    every_size = np.concatenate([sizes, anchors])
    expected_s = prior.a_s + prior.b_s_per_byte * every_size
    every_s = np.concatenate([durations, expected_s[len(sizes) :]])
    worth = np.concatenate([np.ones(len(sizes)), np.full(2, prior_weight / 2)])
    scale_s = np.maximum(np.maximum(every_s, expected_s), SHORTEST_S)
    return _judged(_least_squares(every_size, every_s, np.sqrt(worth) / scale_s), sizes, durations)


def _observations(input_bytes: ArrayLike, seconds: ArrayLike) -> tuple[Floats, Floats]:
    """Return sizes and durations as (N,) arrays; raise ValueError for values that cannot have been observed."""
    sizes, durations = floats(input_bytes), floats(seconds)
    if sizes.ndim != 1 or sizes.shape != durations.shape:
        raise ValueError(f"input_bytes, seconds: expected two (N,) arrays, found {sizes.shape} and {durations.shape}")
    for name, array in (("input_bytes", sizes), ("seconds", durations)):
        if not (np.isfinite(array) & (array >= 0)).all():
            raise ValueError(f"{name}: must be finite and >= 0")
    return sizes, durations


def _least_squares(sizes: Floats, durations: Floats, weight: Floats) -> TimeModel:
    """Minimize ``sum (weight * (a + b * size - duration))^2`` over a, b >= 0, for (N,) sizes that are not all equal.

    Two unknowns need no solver, and importing scipy's (`scipy.optimize.nnls`) takes a second in which a pool's other
    threads hardly run.
    """
    # Sizes of 1e9 beside a column of ones are badly scaled; in units of the largest size both unknowns are seconds.
    unit_bytes = float(sizes.max())
    columns = np.stack([np.ones_like(sizes), sizes / unit_bytes], axis=1) * weight[:, None]
    target = durations * weight
    found = np.linalg.lstsq(columns, target)[0]
    if (found < 0).any():
        # The sum is convex, so its minimum is on the border, where one of the two is 0.
        alone = np.diag(target @ columns / (columns**2).sum(axis=0))
        found = min(alone, key=lambda one: float(((columns @ one - target) ** 2).sum()))
    a_s, b_s = found
    return TimeModel(float(a_s), float(b_s) / unit_bytes)


def _mean_ratio(durations: Floats, scale_s: Floats) -> float:
    """Return the constant c that minimizes ``sum ((c - duration) / scale)^2``."""
    return float(np.sum(durations / scale_s**2) / np.sum(1 / scale_s**2))


def _judged(model: TimeModel, sizes: Floats, durations: Floats) -> Fit:
    """Return the model with its relative errors over the observed runs."""
    predicted = model.a_s + model.b_s_per_byte * sizes
    error = np.abs(predicted - durations) / np.maximum(durations, SHORTEST_S)
    return Fit(model, len(sizes), float(error.mean()), float(error.max()))
