"""What the REST API shows of the pool's objects and takes as requests, derived from their classes.

A class of the pool (`Job`, `BatchRequest`) declares its fields once; `rest_type` makes of it the message that crosses
the REST interface, by the annotations of `model.fields`.  Of it come answers (`show`), the checks of requests
(`as_request`), the objects of the client (`client.resources`) and the OpenAPI document.
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
    """A field as the REST API shows it."""

    name: str
    #: Where it is in the object: its name, or "gang.state" for a field of a part that is shown in its place.
    source: str
    hint: Any

    @property
    def marks(self) -> frozenset[Rest]:
        """How it is shown."""
        return marks_of(self.hint)


def marks_of(hint: Any) -> frozenset[Rest]:
    """Return how the REST API shows a field of a type."""
    found = [mark for one in (hint, *_variants(hint)) for mark in getattr(one, "__metadata__", ())]
    return frozenset(mark for mark in found if isinstance(mark, Rest))


def _variants(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if type(None) in get_args(hint) else ()


@cache
def rest_fields(cls: Any) -> tuple[RestField, ...]:
    """Return what the REST API shows of a class, properties last; its own fields hide those of its parts.

    A class that is LISTED is in lists, too, and these leave out the details of its parts.
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
    """Return the message that crosses the REST interface in place of an object or a request.

    Of a `request` unknown fields are refused, and what has a default may be missing; in an answer all fields are there,
    and what a newer API shows besides is left out.
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
    # What is both asked for and shown, such as a shape, has two names.
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
    """Return the type that a field has in JSON."""
    if get_origin(hint) is Annotated:
        marks = [one for one in hint.__metadata__ if isinstance(one, Rest)]
        if Rest.MOMENT in marks:
            return Annotated[datetime, msgspec.Meta(tz=True)]
        kept = tuple(one for one in hint.__metadata__ if one not in marks)
        inner = _translated(hint.__origin__, request)
        shown = Annotated[(inner, *kept)] if kept else inner
        return shown | None if Rest.LIMIT in marks else shown
    if _has_fields(hint):
        return rest_type(hint, request=True) if request else rest_type(hint)  # a class has one message of each kind
    arguments = get_args(hint)
    if type(None) in arguments:
        return Union[tuple(_translated(one, request) for one in arguments)]  # noqa: UP007  # of as many as there are
    if get_origin(hint) in (tuple, list):
        return get_origin(hint)[(_translated(arguments[0], request), *arguments[1:])]
    return hint


# ---- Answers


def show(thing: Any, *, detail: bool = False) -> Any:
    """Return what the REST API shows of an object; with `detail` its history, too."""
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
    """Return what makes the value in JSON of a field's; None where they are the same."""
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
    """Return the class of an object that a field holds, if there is one; None = it holds something else."""
    return next((one for one in _variants(hint) if _has_fields(one)), None)


def date(at: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 in UTC; what is later than the year 9999 as its last second."""
    return None if at is None else datetime.fromtimestamp(min(at, LATEST), UTC).isoformat(timespec="microseconds")


# ---- Requests


def as_request(cls: Any, body: Any, given: Mapping[str, Any], new_uuid: Callable[[str], str]) -> Any:
    """Return the request that a body is, with what is `given` besides.

    `new_uuid` returns the canonical form of a uuid that a client has chosen, or one in place of "".
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
    except ValueError as error:  # of what no bounds of a field can say, such as an address
        raise InvalidInput(str(error)) from None
