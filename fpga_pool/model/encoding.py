"""Messages as plain JSON values and back: what crosses the wire, and what the outbox holds.

A message is an object of its fields; where it could be of several classes it also has a `type`, the name of its
class.  Decoding is strict: what it does not know or expect is refused by name.  Only a field that has a default may be
missing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages import Action, Report
from fpga_pool.model.values import values_getter

#: Key of the class name; no field of a message may be called so.
TAG = "type"

T = TypeVar("T")

KindTable = Mapping[str, type]


def kinds(*classes: type) -> KindTable:
    """Return the table by which `from_plain` finds these classes; none of them has a field `type` of its own."""
    return {cls.__name__: cls for cls in classes}


ACTIONS = kinds(*get_args(Action))
REPORTS = kinds(*get_args(Report))


def to_plain(message: Any) -> dict[str, Any]:
    """Return a message (a dataclass) as JSON types, with its class."""
    return {TAG: type(message).__name__, **_content(message)}


def from_content(cls: type[T], content: object) -> T:
    """Return the message of one class whose fields are given without its name; else InvalidInput names the field."""
    read: T = _read_content(cls, content, "message")
    return read


def from_plain(table: KindTable, plain: object) -> Any:
    """Return the message that `plain` tells of, of one of the classes in `table`; else InvalidInput names the field."""
    return _read_tagged(table, plain, "message")


def _content(message: Any) -> dict[str, Any]:
    cls: Any = type(message)
    names, values_of, written = _writers(cls)
    plain = dict(zip(names, values_of(message), strict=True))
    for name, write in written:
        plain[name] = write(plain[name])
    return plain


@cache
def _writers(
    cls: Any,
) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[tuple[str, Callable[[Any], Any]], ...]]:
    """Return the fields of a dataclass, what reads them all, and of those that are not JSON what makes it of them."""
    types, _ = _shape(cls)
    written = tuple(
        (name, _writer(expected)) for name, expected in types.items() if _options(expected)[0] not in _SCALARS
    )
    return tuple(types), values_getter(tuple(types)), written


def _writer(expected: Any) -> Callable[[Any], Any]:
    if get_origin(expected) is tuple:
        write = _writer(get_args(expected)[0])
        return lambda items: [write(item) for item in items]
    options = _options(expected)
    if len(options) > 1:
        return to_plain
    if is_dataclass(options[0]):
        return lambda value: None if value is None else _content(value)
    if issubclass(options[0], StrEnum):
        return lambda value: None if value is None else value.value
    return lambda value: value


def _options(expected: Any) -> tuple[Any, ...]:
    """Return the types that a union allows beside None."""
    return tuple(option for option in get_args(expected) or (expected,) if option is not NoneType)


def _read_tagged(table: KindTable, plain: object, place: str) -> Any:
    content = dict(_object(plain, place))
    kind = content.pop(TAG, None)
    cls = table.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidInput(f"{place}.{TAG}: expected one of {', '.join(sorted(table))}, found {kind!r}")
    return _read_content(cls, content, place)


def _read_content(cls: Any, plain: object, place: str) -> Any:
    readers, required = _readers(cls)
    given = _object(plain, place)
    try:
        if given.keys() >= required:
            # Where a value stands is told only of one that is refused: most are not.
            return cls(**{name: readers[name](value, name) for name, value in given.items()})
    except (InvalidInput, KeyError):
        pass
    for problem, names in (("unknown field", given.keys() - readers), ("missing", required - given.keys())):
        if names:
            raise InvalidInput(f"{place}.{min(map(str, names))}: {problem} of {cls.__name__}")
    return cls(**{name: readers[name](value, f"{place}.{name}") for name, value in given.items()})


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


#: Reads a plain value that stands at a place, the name of which is for the error.
Reader = Callable[[Any, str], Any]


@cache
def _readers(cls: Any) -> tuple[dict[str, Reader], set[str]]:
    """Return what reads each field of a dataclass, and the names of those that have no default."""
    types, required = _shape(cls)
    return {name: _reader(expected) for name, expected in types.items()}, required


def _reader(expected: Any) -> Reader:
    """Return what reads a plain value as the expected type: a scalar, an enum, a message, a tuple, a union of those."""
    if get_origin(expected) is tuple:
        read_item = _reader(get_args(expected)[0])
        return lambda plain, place: tuple(
            read_item(item, f"{place}[{i}]") for i, item in enumerate(_list(plain, place))
        )
    options = _options(expected)
    read = _reader_of_one(options[0]) if len(options) == 1 else partial(_read_tagged, kinds(*options))
    if NoneType in get_args(expected):
        return lambda plain, place: None if plain is None else read(plain, place)
    return read


def _reader_of_one(expected: Any) -> Reader:
    if is_dataclass(expected):
        return partial(_read_content, expected)
    if issubclass(expected, StrEnum):
        return partial(_read_enum, {member.value: member for member in expected})
    accepts, name = _SCALARS[expected]

    def read(plain: Any, place: str) -> Any:
        if type(plain) is expected and plain == plain:  # NaN is not
            return plain
        if not accepts(plain):
            raise InvalidInput(f"{place}: expected {name}, found {plain!r}")
        return expected(plain)

    return read


def _list(plain: Any, place: str) -> Any:
    if not isinstance(plain, list | tuple):
        raise InvalidInput(f"{place}: expected a list, found {plain!r}")
    return plain


def _read_enum(members: Mapping[str, StrEnum], plain: Any, place: str) -> Any:
    member = members.get(plain) if isinstance(plain, str) else None
    if member is None:
        raise InvalidInput(f"{place}: expected one of {', '.join(members)}, found {plain!r}")
    return member


_SCALARS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "a text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: type(value) is int, "an integer"),
    float: (lambda value: type(value) in (int, float) and not math.isnan(value), "a number"),
}
