"""JSON of the API as the pool's own objects."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache, partial
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
    return {name: convert(view[name]) for name, convert in _converters(wanted) if name in view}


@cache
def _converters(wanted: Any) -> tuple[tuple[str, Callable[[object], object]], ...]:
    """Return the fields of a class, each with what makes the plain value of the shown one."""
    hints = get_type_hints(wanted)
    return tuple((field.name, _converter(hints[field.name])) for field in fields(wanted))


def _converter(hint: Any) -> Callable[[object], object]:
    if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
        item = get_args(hint)[0]
        return lambda value: [_plain(item, one) for one in value] if isinstance(value, list) else value
    if float in (hint, *get_args(hint)):
        return partial(_time_or_number, unlimited=hint is float)
    return lambda value: value


def _time_or_number(value: object, *, unlimited: bool) -> object:
    if isinstance(value, str):
        return seconds(value)
    return math.inf if unlimited and value is None else value
