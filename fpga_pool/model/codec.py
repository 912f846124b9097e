"""The one codec: values of the pool as plain JSON values and back, each by the types of its own fields.

A class says once which fields it has, of which types and within which bounds; the RPC interface, the REST API
(`model.rest`), the outbox and the agents' journals read and write it by that.  Reading is strict: an unknown field, a
missing one without a default, a value of another type, NaN and null where no None is allowed are refused by name.  One
of several classes (`Action`, `Report`) names itself in its `type`.
"""

import json
import re
import reprlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.values import field_names

T = TypeVar("T")

_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$\.it(?P<place>.*)`)?", re.DOTALL)
#: Of what is large or deep nothing is written that would be cut again.
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxlong, _REPR.maxother = 4, 200, 100, 200
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = _REPR.maxdict = 30
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`")


#: msgspec completes what it remembers of a class while another thread may already read by it, and crashes then.
_PREPARING = threading.Lock()


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what crosses a boundary."""


class Variant(Message, frozen=True, kw_only=True, tag=True):
    """Base of the messages of which one of several is expected: `type` names the class."""


def to_plain(value: Any) -> Any:
    """Return a message, an object of the pool or a collection of them as JSON types."""
    return msgspec.to_builtins(value)


def read(wanted: Any, plain: object, place: str = "message", *, root: str = "message", strict: bool = True) -> Any:
    """Return the value of a type that was written as `plain`; InvalidInput names the place below `place` if it is not.

    The type may be any of annotations: a class, ``list[Job]``, a union of variants.  `root` names the whole where
    `place` is "".  Without `strict` numbers may be given as text.
    """
    try:
        value = msgspec.convert({"it": plain}, _holder(wanted), strict=strict).it
    except msgspec.ValidationError as error:
        raise InvalidInput(_complaint(wanted, str(error), plain, place, root)) from None
    except UnicodeEncodeError:  # what JSON can say, and UTF-8 cannot: as the name of a field, for instance
        raise InvalidInput(f"{place or root}: half of a surrogate pair in a text or in the name of a field") from None
    known = _known(wanted)
    if known is not None:
        known(plain, place)
    return value


@cache
def _holder(wanted: Any) -> Any:
    """Return a class whose field `it` is of a type: msgspec remembers how to read a class, and no other type."""
    holder = msgspec.defstruct("Holder", [("it", wanted)])
    _decoder(holder)
    return holder


@cache
def _known(hint: Any) -> Callable[[Any, str], None] | None:
    """Return what refuses unknown fields of dataclasses in a value of a type: msgspec does it for messages only."""
    cls: Any = bare(hint)
    if is_dataclass(cls):
        order = field_names(cls)
        names = frozenset(order)
        inner = [(name, check) for name, of in hints_of(bare(hint)).items() if (check := _known(of)) is not None]

        def check_object(plain: Any, place: str) -> None:
            if not names.issuperset(plain):
                raise InvalidInput(f"{place}: {_unknown(plain, order)}")
            for name, check in inner:
                if plain.get(name) is not None:
                    check(plain[name], f"{place}.{name}")

        return check_object
    item = _known(get_args(cls)[0]) if get_origin(cls) in (list, tuple) and get_args(cls) else None
    if item is None:
        return None

    def check_items(plain: Any, place: str) -> None:
        for index, one in enumerate(plain):
            item(one, f"{place}[{index}]")

    return check_items


def to_text(value: Any) -> str:
    """Return a value as JSON, in ASCII; infinity is ``Infinity``, which `from_text` reads."""
    quick = msgspec.json.encode(value)
    if quick.isascii() and b"null" not in quick:
        return quick.decode()
    # msgspec writes null for infinity, too.
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def from_text(wanted: Any, text: str | None) -> Any:
    """Return the value of a type that `to_text` wrote; InvalidInput if it is not."""
    try:
        plain = json.loads(text or "null")
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("not JSON: nested too deeply") from None
    return read(wanted, plain)


def from_body(wanted: Any, text: bytes) -> Any:
    """Return the value of a type that the body of an HTTP request is, as JSON; InvalidInput if it is not."""
    try:
        return _decoder(wanted).decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass  # the second look is slower, and says what is wrong
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        raise InvalidInput("body: not valid JSON") from None
    except RecursionError:
        raise InvalidInput("body: nested too deeply") from None
    return read(wanted, plain, "", root="body")


@cache
def _decoder(wanted: Any) -> Any:
    """Return a decoder of a type; what msgspec remembers of the classes in it is complete then."""
    with _PREPARING:
        return msgspec.json.Decoder(wanted)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# ---- Types of fields


def bare(hint: Any) -> Any:
    """Return a type without its annotations and without None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    others = [one for one in get_args(hint) if one is not type(None)]
    return bare(others[0]) if len(others) == 1 < len(get_args(hint)) else hint


@cache
def hints_of(cls: Any) -> Mapping[str, Any]:
    """Return the annotated types of the fields of a message or a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in field_names(cls)}


def _inner(hint: Any, name: str) -> Any:
    """Return the type of a field, or ("") of the items of a list; None where it is not known."""
    hint = bare(hint)
    if not name:
        return next(iter(get_args(hint)), None)
    described = isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct))
    return hints_of(hint).get(name) if described else None


def _meta(hint: Any) -> msgspec.Meta | None:
    """Return what is said of a type that has a description."""
    for one in (hint, *get_args(hint)):
        for meta in getattr(one, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description:
                return meta
    return None


# ---- Errors


def _complaint(hint: Any, said: str, plain: Any, place: str, root: str) -> str:
    """Return what is wrong, where, what would be right, and a little of what is there."""
    parts = _COMPLAINT.fullmatch(said)
    what, path = (parts["what"], parts["place"] or "") if parts else (said, "")
    where = f"{place}{path}".removeprefix(".") or root
    if parts and (parts["key"] or "[...]" in path):
        return f"{where}: {what[:1].lower()}{what[1:]}"
    for name, index in _STEP.findall(path):
        plain = plain[name] if name else plain[int(index)]  # it was read as such
        hint = _inner(hint, name)
    field = _FIELD.fullmatch(what)
    if field is not None:
        names = _names(bare(hint))
        if "unknown" in what:
            return f"{where}: {_unknown(plain, names) if names else f'unknown: {field[1]}'}"
        missing = [name for name in _required(bare(hint)) if name not in plain] if names else []
        return f"{where}: missing: {', '.join(missing or [field[1]])}"
    return f"{where}: {_expected(hint, what)}, found {short(plain)}"


def _names(cls: Any) -> tuple[str, ...]:
    return field_names(cls) if isinstance(cls, type) and issubclass(cls, msgspec.Struct) else ()


def _required(cls: Any) -> list[str]:
    return [field.name for field in msgspec.structs.fields(cls) if field.required]


def _unknown(plain: Mapping[str, object], names: tuple[str, ...]) -> str:
    return f"unknown: {short(sorted(set(plain) - set(names)))}; known: {', '.join(names)}"


def _expected(hint: Any, what: str) -> str:
    meta = _meta(hint)
    if meta is None:
        return f"{what[:1].lower()}{what[1:]}"
    if ("` >= " in what or "` <= " in what) and meta.ge is not None and meta.le is not None:
        return f"expected {meta.ge:g} to {meta.le:g}" if meta.le < 1e6 else f"expected {meta.ge} to {meta.le}"
    return f"expected {meta.description}"


def short(value: object) -> str:
    """Return a little of a value as an error quotes it."""
    text = _REPR.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
