"""The codec of the pool: converts values to plain JSON values and back, according to the types of their fields.

A class declares its fields, their types and their bounds once; the RPC interface, the REST API (`model.rest`), the
outbox and the agents' journals all read and write it by this declaration.  Reading is strict: an unknown field, a
missing field without a default, a value of another type, NaN, and null where None is not allowed raise an error that
names the field.  A member of a union of classes (`Action`, `Report`) has its class name in the field `type`.
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
#: Abbreviates large or deeply nested values in errors, which quote only the first characters (see `short`).
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxlong, _REPR.maxother = 4, 200, 100, 200
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = _REPR.maxdict = 30
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`")


#: Held while a decoder is made: msgspec completes its cached data on a class while another thread may already use
#: them, and crashes then.
_PREPARING = threading.Lock()


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all messages that cross a process boundary or are stored."""


class Variant(Message, frozen=True, kw_only=True, tag=True):
    """Base of messages that are members of a union; the field `type` has the class name."""


def to_plain(value: Any) -> Any:
    """Convert a message, an object of the pool or a collection of them to JSON types."""
    return msgspec.to_builtins(value)


def read(wanted: Any, plain: object, place: str = "message", *, root: str = "message", strict: bool = True) -> Any:
    """Convert plain JSON types to a value of type `wanted`; InvalidInput names the invalid field, prefixed by `place`.

    `wanted` may be any type annotation: a class, ``list[Job]``, a union of variants.  Errors about the whole value
    call it `root` if `place` is "".  Without `strict`, numbers may be given as text.
    """
    try:
        value = msgspec.convert({"it": plain}, _holder(wanted), strict=strict).it
    except msgspec.ValidationError as error:
        raise InvalidInput(_complaint(wanted, str(error), plain, place, root)) from None
    except UnicodeEncodeError:  # valid in JSON but not in UTF-8, for example in the name of a field
        raise InvalidInput(f"{place or root}: half of a surrogate pair in a text or in the name of a field") from None
    known = _known(wanted)
    if known is not None:
        known(plain, place)
    return value


@cache
def _holder(wanted: Any) -> Any:
    """Return a class whose field `it` has this type: msgspec caches how to read classes, but not other types."""
    holder = msgspec.defstruct("Holder", [("it", wanted)])
    _decoder(holder)
    return holder


@cache
def _known(hint: Any) -> Callable[[Any, str], None] | None:
    """Return a check for unknown fields of dataclasses, which msgspec does for messages only; None if not needed."""
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
    """Convert a value to JSON text, in ASCII; infinity is written as ``Infinity``, which `from_text` reads."""
    quick = msgspec.json.encode(value)
    if quick.isascii() and b"null" not in quick:
        return quick.decode()
    # msgspec writes null for infinity, too.
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def from_text(wanted: Any, text: str | None) -> Any:
    """Read a value of type `wanted` from the text that `to_text` wrote; InvalidInput if the text is not valid."""
    try:
        plain = json.loads(text or "null")
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput("not JSON: nested too deeply") from None
    return read(wanted, plain)


def from_body(wanted: Any, text: bytes) -> Any:
    """Read a value of type `wanted` from the JSON body of an HTTP request; InvalidInput if it is not valid."""
    try:
        return _decoder(wanted).decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass  # read it again below, which is slower but says what is wrong
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        raise InvalidInput("body: not valid JSON") from None
    except RecursionError:
        raise InvalidInput("body: nested too deeply") from None
    return read(wanted, plain, "", root="body")


@cache
def _decoder(wanted: Any) -> Any:
    """Return a decoder for a type; afterwards msgspec's cached data on the classes in it are complete."""
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
    """Return the type of a field, or of the items of a list if `name` is ""; None if unknown."""
    hint = bare(hint)
    if not name:
        return next(iter(get_args(hint)), None)
    described = isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct))
    return hints_of(hint).get(name) if described else None


def _meta(hint: Any) -> msgspec.Meta | None:
    """Return the first metadata of a type that have a description; None if there are none."""
    for one in (hint, *get_args(hint)):
        for meta in getattr(one, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description:
                return meta
    return None


# ---- Errors


def _complaint(hint: Any, said: str, plain: Any, place: str, root: str) -> str:
    """Return an error message: where the error is, what was expected, and an excerpt of what was found."""
    parts = _COMPLAINT.fullmatch(said)
    what, path = (parts["what"], parts["place"] or "") if parts else (said, "")
    where = f"{place}{path}".removeprefix(".") or root
    if parts and (parts["key"] or "[...]" in path):
        return f"{where}: {what[:1].lower()}{what[1:]}"
    for name, index in _STEP.findall(path):
        plain = plain[name] if name else plain[int(index)]  # exists: msgspec has read it
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
    """Return an abbreviated representation of a value for error messages, at most 60 characters."""
    text = _REPR.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
