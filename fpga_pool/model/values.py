"""Helpers for immutable values (fast changed copies, common fields), and for numbers with their nouns."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

ValueT = TypeVar("ValueT")


def changed(value: ValueT, **others: Any) -> ValueT:
    """Return a copy of a message or a dataclass with other values in some fields.

    It takes two thirds of the time of `dataclasses.replace` for an object with many fields, but type checkers do not
    verify the names.
    """
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **others)
    cls: Any = type(value)
    names, values_of = _fields(cls)
    made: ValueT = cls(**{**dict(zip(names, values_of(value), strict=True)), **others})
    return made


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 job", "2 jobs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@cache
def _fields(cls: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of the fields, and a function that returns the values of all of them."""
    names = field_names(cls)
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda value: tuple(getattr(value, name) for name in names)


def shared(source: object, cls: Any) -> dict[str, Any]:
    """Return the fields of `source` that `cls` has, too, as keyword arguments to construct or change a `cls`."""
    made_of: Any = type(source)
    return {name: getattr(source, name) for name in _common(made_of, cls)}


@cache
def _common(one: Any, other: Any) -> tuple[str, ...]:
    return tuple(name for name in field_names(one) if name in field_names(other))


def field_names(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields of a message class or a dataclass, in order."""
    names: tuple[str, ...]
    names = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else tuple(field.name for field in fields(cls))
    return names
