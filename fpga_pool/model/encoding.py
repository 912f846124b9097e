"""Messages as plain JSON values and back: what crosses the wire, and what the outbox holds.

A message is an object of its fields; where it could be of several classes it also has a `type`, the name of its
class.  Decoding is strict: what it does not know or expect is refused by name.  Only a field that has a default may be
missing, so that a message of the release before, which did not have the field yet, is still understood.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages import Action, Report

#: Key of the class name; no field of a message may be called so.
TAG = "type"

KindTable = Mapping[str, type]


def kinds(*classes: type) -> KindTable:
    """Return the table by which `from_plain` finds these classes; none of them has a field `type` of its own."""
    return {cls.__name__: cls for cls in classes}


ACTIONS = kinds(*get_args(Action))
REPORTS = kinds(*get_args(Report))


def to_plain(message: Any) -> dict[str, Any]:
    """Return a message (a dataclass) as JSON types, with its class."""
    return {TAG: type(message).__name__, **_content(message)}


def from_plain(table: KindTable, plain: object) -> Any:
    """Return the message that `plain` tells of, of one of the classes in `table`; else InvalidInput names the field."""
    return _read_tagged(table, plain, "message")


def _content(message: Any) -> dict[str, Any]:
    cls: Any = type(message)
    types, _ = _shape(cls)
    return {name: _plain(expected, getattr(message, name)) for name, expected in types.items()}


def _plain(expected: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(get_args(expected)[0], item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    if is_dataclass(value):
        return to_plain(value) if len(_options(expected)) > 1 else _content(value)
    return value


def _options(expected: Any) -> tuple[Any, ...]:
    """Return the types that a union allows beside None."""
    return tuple(option for option in get_args(expected) or (expected,) if option is not NoneType)


def _read_tagged(table: KindTable, plain: object, place: str) -> Any:
    kind = _object(plain, place).get(TAG)
    cls = table.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidInput(f"{place}.{TAG}: expected one of {', '.join(sorted(table))}, found {kind!r}")
    return _read_content(cls, {name: value for name, value in _object(plain, place).items() if name != TAG}, place)


def _read_content(cls: Any, plain: object, place: str) -> Any:
    types, required = _shape(cls)
    given = _object(plain, place)
    for problem, names in (("unknown field", given.keys() - types), ("missing", required - given.keys())):
        if names:
            raise InvalidInput(f"{place}.{min(map(str, names))}: {problem} of {cls.__name__}")
    return cls(**{name: _read(types[name], value, f"{place}.{name}") for name, value in given.items()})


def _object(plain: object, place: str) -> dict[Any, Any]:
    if not isinstance(plain, dict):
        raise InvalidInput(f"{place}: expected an object, found {plain!r}")
    return plain


@cache
def _shape(cls: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the type of each field of a dataclass, and the names of those that have no default."""
    hints = get_type_hints(cls)
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    return {f.name: hints[f.name] for f in fields(cls)}, required


def _read(expected: Any, plain: Any, place: str) -> Any:
    """Return a plain value as one of the expected type: a scalar, an enum, a message, a tuple or a union of those."""
    if get_origin(expected) is tuple:
        if not isinstance(plain, list | tuple):
            raise InvalidInput(f"{place}: expected a list, found {plain!r}")
        return tuple(_read(get_args(expected)[0], item, f"{place}[{i}]") for i, item in enumerate(plain))
    if plain is None and NoneType in get_args(expected):
        return None
    options = _options(expected)
    if len(options) > 1:
        return _read_tagged(kinds(*options), plain, place)
    if is_dataclass(options[0]):
        return _read_content(options[0], plain, place)
    return _read_scalar(options[0], plain, place)


def _read_scalar(expected: Any, plain: Any, place: str) -> Any:
    if issubclass(expected, StrEnum):
        if plain in list(expected):
            return expected(plain)
        raise InvalidInput(f"{place}: expected one of {', '.join(expected)}, found {plain!r}")
    accepts, name = _SCALARS[expected]
    if not accepts(plain):
        raise InvalidInput(f"{place}: expected {name}, found {plain!r}")
    return expected(plain)


_SCALARS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "a text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: type(value) is int, "an integer"),
    float: (lambda value: type(value) in (int, float) and not math.isnan(value), "a number"),
}
