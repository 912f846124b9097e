"""Parameters of policies: frozen dataclasses whose fields carry their help text and limits that are checked."""

import math
from dataclasses import Field, field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def parameter(default: T, meaning: str, **limits: Any) -> T:
    """Return a dataclass field for a policy parameter; its option has this help and these limits.

    The limits are `min`, `max` and `choices`, and the exclusive limits `above` and `below`, which the option ignores.
    """
    made: T = field(default=default, metadata={"help": meaning, **limits})
    return made


class Parameters:
    """Base of the parameters of a policy; raises ValueError for the first parameter outside its limits."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, item.name)
            if not _is_within(item, value):
                raise ValueError(f"{item.name}: expected {_expected(item)}, got {value!r}")


def _is_within(item: Field[Any], value: Any) -> bool:
    limits = item.metadata
    if "choices" in limits:
        return value in limits["choices"]
    if isinstance(item.default, bool | str):
        return True
    if isinstance(item.default, int) and not isinstance(value, int):
        return False
    low, high = limits.get("min", -math.inf), limits.get("max", math.inf)
    above, below = limits.get("above", -math.inf), limits.get("below", math.inf)
    return math.isfinite(value) and low <= value <= high and above < value < below


def _expected(item: Field[Any]) -> str:
    limits = item.metadata
    if "choices" in limits:
        return f"one of {', '.join(limits['choices'])}"
    what = "seconds" if item.name.endswith("_s") else "a number"
    if isinstance(item.default, int):
        what = "a whole number"
    said = {"min": "{:g} or more", "above": "above {:g}", "max": "{:g} at most", "below": "below {:g}"}
    return ", ".join([what, *(text.format(limits[name]) for name, text in said.items() if name in limits)])
