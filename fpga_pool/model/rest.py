"""Representation of the pool's objects and requests in the REST API, derived from their classes.

A class of the pool (`Job`, `BatchRequest`) declares its fields once; `rest_type` derives the message that crosses the
REST interface from it, by the annotations of `model.fields`.  The message is used for answers (`show`), for the checks
of requests (`as_request`), for the objects of the client (`client.resources`) and for the OpenAPI document.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from fpga_pool.model.codec import hints_of
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import LATEST, Rest

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RestField:
    """A field in the REST API."""

    name: str
    #: Path of its value in the object: its name, or for example "gang.state" for a field of a FLAT part.
    source: str
    hint: Any

    @property
    def marks(self) -> frozenset[Rest]:
        """Marks that determine its representation."""
        return marks_of(self.hint)


def marks_of(hint: Any) -> frozenset[Rest]:
    """Return the `Rest` marks of a type."""
    found = [mark for one in (hint, *_variants(hint)) for mark in getattr(one, "__metadata__", ())]
    return frozenset(mark for mark in found if isinstance(mark, Rest))


def _variants(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if type(None) in get_args(hint) else ()


@cache
def rest_fields(cls: Any) -> tuple[RestField, ...]:
    """Return the fields of a class in the REST API, properties last; its own fields hide those of its FLAT parts.

    The details of its parts are always shown, unless the class is LISTED: then lists leave them out.
    """
    found: list[RestField] = []
    hints, listed = hints_of(cls), getattr(cls, "LISTED", False)
    own = {name for name, hint in hints.items() if Rest.FLAT not in marks_of(hint)}
    for name, hint in hints.items():
        marks = marks_of(hint)
        if Rest.FLAT in marks:
            inner = [one for one in rest_fields(get_args(hint)[0]) if one.name not in own]
            found += [
                RestField(one.name, f"{name}.{one.source}", one.hint if listed else _without(one.hint, Rest.DETAIL))
                for one in inner
            ]
        elif Rest.INTERNAL not in marks:
            found.append(RestField(name, name, hint))
    for name in getattr(cls, "ALSO_SHOWN", ()):
        found.append(RestField(name, name, get_type_hints(getattr(cls, name).fget, include_extras=True)["return"]))
    return tuple(found)


@cache
def rest_type(cls: Any, *, request: bool = False) -> Any:
    """Return the message class that represents an object or a request in the REST API.

    In a `request`, unknown fields are refused and fields with a default may be missing.  In an answer, all fields but
    details are present, and unknown fields, as of a newer API, are ignored.
    """
    needed: list[Any] = []
    optional: list[Any] = []
    for field in rest_fields(cls):
        hint = _translated(field.hint, request)
        default = _default(cls, field.name) if request else msgspec.NODEFAULT
        if field.marks & {Rest.DETAIL, Rest.CHOSEN}:
            optional.append((field.name, hint | msgspec.UnsetType, msgspec.UNSET))
        elif default is not msgspec.NODEFAULT:
            optional.append((field.name, hint, default))
        else:
            needed.append((field.name, hint))
    fields = [*needed, *optional]
    if request:
        names = [field.name for field in rest_fields(cls)]
        fields.sort(key=lambda field: names.index(field[0]))
    # A class that is part of both requests and answers, such as a shape, gets two names.
    asked = request and not cls.__name__.endswith(("Request", "Requests"))
    name = f"{cls.__name__}Request" if asked else cls.__name__
    return msgspec.defstruct(name, fields, frozen=True, kw_only=request, forbid_unknown_fields=request)


def _default(cls: Any, name: str) -> Any:
    return next(field.default for field in msgspec.structs.fields(cls) if field.name == name)


def _has_fields(cls: Any) -> bool:
    return isinstance(cls, type) and (is_dataclass(cls) or issubclass(cls, msgspec.Struct))


def _without(hint: Any, mark: Rest) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    kept = tuple(one for one in hint.__metadata__ if one is not mark)
    return Annotated[(hint.__origin__, *kept)] if kept else hint.__origin__


def _translated(hint: Any, request: bool) -> Any:
    """Return the type of a field in JSON."""
    if get_origin(hint) is Annotated:
        marks = [one for one in hint.__metadata__ if isinstance(one, Rest)]
        if Rest.MOMENT in marks:
            return Annotated[datetime, msgspec.Meta(tz=True)]
        kept = tuple(one for one in hint.__metadata__ if one not in marks)
        inner = _translated(hint.__origin__, request)
        shown = Annotated[(inner, *kept)] if kept else inner
        return shown | None if Rest.LIMIT in marks else shown
    if _has_fields(hint):
        return rest_type(hint, request=True) if request else rest_type(hint)  # request=False has another cache key
    arguments = get_args(hint)
    if type(None) in arguments:
        return Union[tuple(_translated(one, request) for one in arguments)]  # noqa: UP007  # of as many as there are
    if get_origin(hint) in (tuple, list):
        return get_origin(hint)[(_translated(arguments[0], request), *arguments[1:])]
    return hint


# ---- Answers


def show(thing: Any, *, detail: bool = False) -> Any:
    """Return the representation of an object in the REST API; with `detail`, details such as its history, too."""
    cls: Any = type(thing)
    return _shower(cls, detail)(thing)


@cache
def _shower(cls: Any, detail: bool) -> Convert:
    shown, by_name = rest_type(cls), {field.name: field for field in rest_fields(cls)}
    fields = [by_name[name] for name in shown.__struct_fields__]
    if not detail:
        fields = [field for field in fields if Rest.DETAIL not in field.marks]  # they are the last
    values_of = attrgetter(*(field.source for field in fields))
    converters = [(index, convert) for index, field in enumerate(fields) if (convert := _converter(field.hint))]

    def show_one(thing: Any) -> Any:
        values = list(values_of(thing))
        for index, convert in converters:
            values[index] = convert(values[index])
        return shown(*values)

    return show_one


def _converter(hint: Any) -> Convert | None:
    """Return the function that converts a field's value to its value in JSON; None if they are the same."""
    marks = marks_of(hint)
    if Rest.MOMENT in marks:
        return date
    if Rest.LIMIT in marks:
        return lambda value: None if value == math.inf else value
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    if get_origin(hint) is tuple and _has_fields(get_args(hint)[0]):
        item: Any = get_args(hint)[0]
        show_one = _shower(item, False)
        return lambda values: tuple(map(show_one, values))
    if part_of(hint):
        return lambda value: None if value is None else show(value)
    return None


def part_of(hint: Any) -> Any:
    """Return the class of the object that an optional field holds; None if the field is of another kind."""
    return next((one for one in _variants(hint) if _has_fields(one)), None)


def date(at: float | None) -> str | None:
    """Convert seconds since the epoch to ISO 8601 in UTC; times after the year 9999 become its last second."""
    return None if at is None else datetime.fromtimestamp(min(at, LATEST), UTC).isoformat(timespec="microseconds")


# ---- Requests


def as_request(cls: Any, body: Any, given: Mapping[str, Any], new_uuid: Callable[[str], str]) -> Any:
    """Convert the body of a request to a `cls`, with the additional fields `given`.

    `new_uuid` returns the canonical form of a uuid that the client has chosen, or a new uuid for "".
    """
    values = dict(given)
    for field in rest_fields(cls):
        value = getattr(body, field.name)
        if Rest.CHOSEN in field.marks:
            value = new_uuid("" if value is msgspec.UNSET else value)
        elif isinstance(value, datetime):
            value = value.timestamp()
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            hint = field.hint.__origin__ if get_origin(field.hint) is Annotated else field.hint
            value = tuple(as_request(get_args(hint)[0], one, {}, new_uuid) for one in value)
        values[field.name] = value
    try:
        return cls(**values)
    except ValueError as error:  # from checks that the bounds of a field cannot express, as of an address
        raise InvalidInput(str(error)) from None
