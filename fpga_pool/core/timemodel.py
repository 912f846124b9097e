"""Time models: the compute time of a job, and the size of its result, as affine functions of its input size.

Both coefficients are non-negative, so that no input size is ever predicted to take negative time.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Computation time in seconds: ``a_s + b_s_per_byte * input_bytes``."""

    a_s: float
    b_s_per_byte: float

    def __post_init__(self) -> None:
        _check_coefficients(self, "a_s", "b_s_per_byte")

    def seconds(self, input_bytes: float) -> float:
        """Return the predicted computation time for an input of this size."""
        return self.a_s + self.b_s_per_byte * input_bytes


@dataclass(frozen=True, slots=True)
class SizeModel:
    """Size of a result in bytes: ``a_bytes + b_bytes_per_byte * input_bytes``."""

    a_bytes: float
    b_bytes_per_byte: float

    def __post_init__(self) -> None:
        _check_coefficients(self, "a_bytes", "b_bytes_per_byte")

    def bytes(self, input_bytes: float) -> int:
        """Return the predicted size of the result of an input of this size, rounded up."""
        return math.ceil(self.a_bytes + self.b_bytes_per_byte * input_bytes)


def _check_coefficients(model: TimeModel | SizeModel, *names: str) -> None:
    for name in names:
        value = getattr(model, name)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and >= 0, found {value}")
