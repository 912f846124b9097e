"""The one codec: values of the pool as plain JSON values and back, each by the types of its own fields.

A class says once which fields it has, of which types and within which bounds; the RPC interface, the outbox and the
agents' journals read and write it by that.  The REST API has its own schemas (`api.schemas`).  Reading is strict: an
unknown field, a missing one without a default, a value of another type, NaN and null where no None is allowed are
refused by name.  One of several classes (`Action`, `Report`) names itself in its `type`.
"""

import json
import re
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from fpga_pool.model.exceptions import InvalidInput

T = TypeVar("T")

#: A number that is not NaN; infinity is one, and survives only where JSON is read by Python (RPC, outbox, journals).
Number = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308)]

_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$\.it(?P<place>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what crosses a boundary."""


class Variant(Message, frozen=True, kw_only=True, tag=True):
    """Base of the messages of which one of several is expected: `type` names the class."""


def to_plain(value: Any) -> Any:
    """Return a message, an object of the pool or a collection of them as JSON types."""
    return msgspec.to_builtins(value)


def read(wanted: Any, plain: object, place: str = "message") -> Any:
    """Return the value of a type that was written as `plain`; InvalidInput names the place below `place` if it is not.

    The type may be any of annotations: a class, ``list[Job]``, a union of variants.
    """
    try:
        return msgspec.convert({"it": plain}, _holder(wanted)).it
    except msgspec.ValidationError as error:
        raise InvalidInput(_complaint(str(error), plain, place)) from None


@cache
def _holder(wanted: Any) -> Any:
    """Return a class whose field `it` is of a type: msgspec remembers how to read a class, and no other type."""
    return msgspec.defstruct("Holder", [("it", wanted)])


def to_text(value: Any) -> str:
    """Return a value as JSON; infinity is ``Infinity``, which `from_text` reads."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def from_text(wanted: Any, text: str | None) -> Any:
    """Return the value of a type that `to_text` wrote; InvalidInput if it is not."""
    try:
        plain = json.loads(text or "null")
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}") from None
    return read(wanted, plain)


def _complaint(said: str, plain: object, place: str) -> str:
    """Return what is wrong, where, and a little of what is there."""
    parts = _COMPLAINT.fullmatch(said)
    what, path = (parts["what"], parts["place"] or "") if parts else (said, "")
    found = ""
    if what.startswith("Expected") and not (parts and parts["key"]) and "[...]" not in path:
        for name, index in _STEP.findall(path):
            plain = plain[name] if name else plain[int(index)]  # type: ignore[index]  # it was read as such
        found = f", found {plain!r:.60}"
    return f"{f'{place}{path}'.removeprefix('.') or 'message'}: {what[:1].lower()}{what[1:]}{found}"
