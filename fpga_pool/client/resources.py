"""Conversion of the API's JSON into the pool's own objects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from math import inf
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from fpga_pool.model.codec import hints_of
from fpga_pool.model.codec import read as read_plain
from fpga_pool.model.exceptions import InvalidAnswer, InvalidInput
from fpga_pool.model.fields import Rest
from fpga_pool.model.rest import marks_of, part_of, rest_fields, rest_type

T = TypeVar("T")


class _Partial:
    """An object for which the API returns only some fields: reading another one raises AttributeError."""

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


def read(wanted: type[T], answer: Mapping[str, object], key: str = "") -> T:
    """Return the object under a key of an answer, or of the whole answer; extra fields of a newer API are ignored.

    A field that the API does not return has no value at all: reading it raises AttributeError.  InvalidAnswer says
    which part of the answer is invalid.
    """
    cls: Any = wanted
    made: T = _made(cls)(_read(rest_type(cls), answer, key))
    return made


def read_all(wanted: type[T], answer: Mapping[str, object], key: str) -> list[T]:
    """Return the objects of a list in an answer."""
    cls: Any = wanted
    return [_made(cls)(one) for one in _read(list[rest_type(cls)], answer, key)]  # type: ignore[misc]  # made here


def _read(wanted: Any, answer: Mapping[str, object], key: str) -> Any:
    if key and key not in answer:
        raise InvalidAnswer(f"the API's response is invalid: missing: {key}")
    try:
        return read_plain(wanted, answer[key] if key else answer, key, root="answer")
    except InvalidInput as error:
        raise InvalidAnswer(f"the API's response is invalid: {error}") from error


@cache
def _made(wanted: Any) -> Callable[[Any], Any]:
    """Return a function that makes an object of the pool from the decoded message of the API."""
    shown = {field.name for field in rest_fields(wanted)}
    steps: list[tuple[str, Callable[[Any], Any]]] = []
    for name, hint in hints_of(wanted).items():
        if Rest.FLAT in marks_of(hint):
            steps.append((name, _made(get_args(hint)[0])))
        elif name in shown:
            steps.append((name, _reader(name, hint)))
    if not is_dataclass(wanted):
        return lambda message: wanted(**{name: value_of(message) for name, value_of in steps})
    whole: Any = wanted
    partial: Any = _partial(whole)
    count = len(fields(whole))

    def make(message: Any) -> Any:
        values = [(name, value) for name, value_of in steps if (value := value_of(message)) is not msgspec.UNSET]
        made = object.__new__(whole if len(values) == count else partial)
        for name, value in values:
            object.__setattr__(made, name, value)
        return made

    return make


def _reader(name: str, hint: Any) -> Callable[[Any], Any]:
    """Return a function that reads the value of a field from a decoded message."""
    marks = marks_of(hint)
    if Rest.MOMENT in marks:
        return lambda message: None if (at := getattr(message, name)) is None else at.timestamp()
    if Rest.LIMIT in marks:
        return lambda message: inf if (limit := getattr(message, name)) is None else limit
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    item: Any = get_args(hint)[0] if get_origin(hint) is tuple else None
    if is_dataclass(item) or (isinstance(item, type) and issubclass(item, msgspec.Struct)):
        items: Any = item
        make = _made(items)
        return lambda message: (
            values if (values := getattr(message, name)) is msgspec.UNSET else tuple(map(make, values))
        )
    if part := part_of(hint):
        make_part = _made(part)
        return lambda message: None if getattr(message, name) is None else make_part(getattr(message, name))
    return lambda message: getattr(message, name)


def next_page(answer: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return the query parameters of the next page of a list; empty if there is none."""
    href = next((link.get("href", "") for link in answer.get("links", ()) if link.get("rel") == "next"), "")
    return parse_qs(urlsplit(href).query, keep_blank_values=True)


def segment(text: str) -> str:
    """Return a segment of a path, quoted for a URL."""
    return quote(text, safe="")
