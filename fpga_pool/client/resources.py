"""JSON of the API as the pool's own objects."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fpga_pool.model.encoding import from_content
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput

T = TypeVar("T")


def read(wanted: type[T], view: object) -> T:
    """Return the object that a view shows; what a newer API shows besides is left out."""
    try:
        return from_content(wanted, _plain(wanted, view))
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
    names, converted = _converters(wanted)
    plain = {name: view[name] for name in names & view.keys()}
    for name, convert in converted:
        if name in plain:
            plain[name] = convert(plain[name])
    return plain


@cache
def _converters(wanted: Any) -> tuple[frozenset[str], tuple[tuple[str, Callable[[object], object]], ...]]:
    """Return the fields of a class, and of those that are shown otherwise what makes the plain value of the shown."""
    hints = get_type_hints(wanted)
    names = [field.name for field in fields(wanted)]
    found = [(name, _converter(hints[name])) for name in names]
    return frozenset(names), tuple((name, convert) for name, convert in found if convert is not None)


def _converter(hint: Any) -> Callable[[object], object] | None:
    if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
        item = get_args(hint)[0]
        return lambda value: [_plain(item, one) for one in value] if isinstance(value, list) else value
    if float in (hint, *get_args(hint)):
        return partial(_time_or_number, unlimited=hint is float)
    return None


def _time_or_number(value: object, *, unlimited: bool) -> object:
    if isinstance(value, str):
        return seconds(value)
    return math.inf if unlimited and value is None else value
