"""JSON of the API as the pool's own objects."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fpga_pool.model.codec import Message
from fpga_pool.model.codec import read as read_plain
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.model.values import field_names

T = TypeVar("T")


class _Partial:
    """An object of which a view shows some fields only: reading another one raises AttributeError."""

    __slots__ = ()

    def _shown(self) -> dict[str, object]:
        this: Any = self
        return {field.name: getattr(self, field.name) for field in fields(this) if hasattr(self, field.name)}

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"{name} of this {type(self).__name__.lower()} is not in the API's response")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._shown().items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Partial) and type(other) is type(self) and other._shown() == self._shown()

    def __hash__(self) -> int:
        return hash(tuple(self._shown().items()))


@cache
def _partial(wanted: Any) -> Any:
    return type(wanted.__name__, (_Partial, wanted), {"__slots__": ()})


def read(wanted: type[T], view: object) -> T:
    """Return the object that a view shows; what a newer API shows besides is left out.

    A field with a default that the view does not show has no value at all: reading it raises AttributeError.
    """
    whole: Any = wanted
    try:
        plain = _plain(wanted, view)
        hidden = _converters(whole)[0] - plain.keys() if isinstance(plain, dict) else frozenset()
        kind = _partial(whole) if hidden else whole
        found: T = read_plain(kind, plain, "")
    except (InvalidInput, ValueError) as error:
        raise FpgaPoolError(f"the API's response is invalid: {error}") from error
    for name in hidden:
        object.__delattr__(found, name)
    return found


def read_all(wanted: type[T], views: object) -> list[T]:
    """Return the objects of a list."""
    if not isinstance(views, list):
        raise FpgaPoolError(f"the API's response is invalid: expected a list of {wanted.__name__}")
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
    names = field_names(wanted)
    found = [(name, _converter(name, hints[name])) for name in names]
    return frozenset(names), tuple((name, convert) for name, convert in found if convert is not None)


def _converter(name: str, hint: Any) -> Callable[[object], object] | None:
    item = get_args(hint)[0] if get_origin(hint) is tuple else None
    if is_dataclass(item) or (isinstance(item, type) and issubclass(item, Message)):
        return lambda value: [_plain(item, one) for one in value] if isinstance(value, list) else value
    if hint is float and name.endswith("bps"):
        return _limit
    return _time if float in (hint, *get_args(hint)) else None


def _limit(value: object) -> object:
    """Return a rate limit: JSON has no infinity, and where there is no limit the API says null."""
    return math.inf if value is None else value


def _time(value: object) -> object:
    return seconds(value) if isinstance(value, str) else value
