"""Messages as plain JSON values and back: what crosses the wire, and what the outbox holds.

Every message is an object with a `kind`, the name of its class.  Decoding is strict: what it does not know or expect
is refused by name.  Only a field that has a default may be missing, so that a message of the release before, which
did not have the field yet, is still understood.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages import AssignJob, ReleaseJob

KindTable = Mapping[str, type]


def kinds(*classes: type) -> KindTable:
    """Return the table by which `from_plain` finds these classes."""
    return {cls.__name__: cls for cls in classes}


ACTIONS = kinds(AssignJob, ReleaseJob)


def to_plain(message: Any) -> dict[str, Any]:
    """Return a message (a dataclass) as JSON types."""
    content = {field.name: _plain(getattr(message, field.name)) for field in fields(message)}
    return {"kind": type(message).__name__, **content}


def from_plain(table: KindTable, plain: object) -> Any:
    """Return the message that `plain` tells of, of one of the classes in `table`; else InvalidInput names the field."""
    return _message(table, plain, "message")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return to_plain(value) if is_dataclass(value) else value


def _message(table: KindTable, plain: object, place: str) -> Any:
    if not isinstance(plain, dict):
        raise InvalidInput(f"{place}: expected an object, found {plain!r}")
    kind = plain.get("kind")
    cls = table.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidInput(f"{place}.kind: expected one of {', '.join(sorted(table))}, found {kind!r}")
    types, required = _shape(cls)
    given = plain.keys() - {"kind"}
    for problem, names in (("unknown field", given - types.keys()), ("missing", required - given)):
        if names:
            raise InvalidInput(f"{place}.{min(map(str, names))}: {problem} of {kind}")
    return cls(**{name: _value(types[name], plain[name], f"{place}.{name}") for name in given})


@cache
def _shape(cls: type) -> tuple[dict[str, Any], set[str]]:
    """Return the type of each field of a dataclass, and the names of those that have no default."""
    hints = get_type_hints(cls)
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    return {f.name: hints[f.name] for f in fields(cls)}, required


def _value(expected: Any, plain: Any, place: str) -> Any:
    """Return a plain value as one of the expected type: a scalar, an enum, a message, a tuple or a union of those."""
    if get_origin(expected) is tuple:
        if not isinstance(plain, list | tuple):
            raise InvalidInput(f"{place}: expected a list, found {plain!r}")
        return tuple(_value(get_args(expected)[0], item, f"{place}[{i}]") for i, item in enumerate(plain))
    options = get_args(expected) or (expected,)
    if NoneType in options and plain is None:
        return None
    options = tuple(option for option in options if option is not NoneType)
    if is_dataclass(options[0]):
        return _message(kinds(*options), plain, place)
    return _scalar(options[0], plain, place)


def _scalar(expected: type, plain: Any, place: str) -> Any:
    if issubclass(expected, StrEnum):
        if plain in list(expected):
            return expected(plain)
        raise InvalidInput(f"{place}: expected one of {', '.join(expected)}, found {plain!r}")
    accepts, name = _SCALARS[expected]
    if not accepts(plain):
        raise InvalidInput(f"{place}: expected {name}, found {plain!r}")
    return expected(plain)


_SCALARS: dict[type, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "a text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: type(value) is int, "an integer"),
    float: (lambda value: type(value) in (int, float) and not math.isnan(value), "a number"),
}
