"""JSON of the API as the pool's own objects."""

import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from fpga_pool.model.encoding import TAG, from_plain, kinds
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

T = TypeVar("T")


def read(wanted: type[T], view: object) -> T:
    """Return the object that a view shows; what a newer API shows besides is left out."""
    try:
        plain = _plain(wanted, view)
        return cast(
            "T", from_plain(kinds(wanted), {TAG: wanted.__name__, **plain} if isinstance(plain, dict) else plain)
        )
    except (InvalidInput, ValueError) as error:
        raise FpgaPoolError(f"the API's answer is not understood: {error}") from error


def read_all(wanted: type[T], views: object) -> list[T]:
    """Return the objects of a list."""
    if not isinstance(views, list):
        raise FpgaPoolError(f"the API's answer is not understood: expected a list of {wanted.__name__}")
    return [read(wanted, view) for view in views]


def seconds(date: str) -> float:
    """Return a date as seconds since the epoch."""
    return datetime.fromisoformat(date).timestamp()


def _plain(wanted: Any, view: object) -> object:
    if not isinstance(view, dict):
        return view
    hints = get_type_hints(wanted)
    known = {field.name: view[field.name] for field in fields(wanted) if field.name in view}
    return {name: _value(hints[name], value) for name, value in known.items()}


def _value(hint: Any, value: object) -> object:
    if hint is float and value is None:
        return math.inf  # no limit
    if isinstance(value, str) and float in (hint, *get_args(hint)):
        return seconds(value)
    if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]) and isinstance(value, list):
        return [_plain(get_args(hint)[0], item) for item in value]
    return value
