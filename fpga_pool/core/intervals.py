"""Confidence intervals of means."""

from scipy import special

from fpga_pool.core.types import Floats

_CONFIDENCE = 0.95


def half_width(values: Floats) -> float:
    """Return half the width of the 95 % confidence interval of the mean; NaN for fewer than two values."""
    if len(values) < 2:
        return float("nan")
    deviation = float(values.std(ddof=1)) / len(values) ** 0.5
    quantile: float = special.stdtrit(len(values) - 1, (1 + _CONFIDENCE) / 2)
    return float(deviation * quantile)
