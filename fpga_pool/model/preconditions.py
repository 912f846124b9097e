"""Preconditions of changes: the versions of an object that a client has seen (If-Match)."""

import hashlib
from functools import cache
from typing import Annotated, Any, get_type_hints

from msgspec import Meta

from fpga_pool.model.codec import to_text
from fpga_pool.model.exceptions import PreconditionFailed
from fpga_pool.model.fields import Rest
from fpga_pool.model.objects.quotas import Quota, QuotaLimits
from fpga_pool.model.rest import marks_of

#: The object must have one of these versions; None = any version.
Seen = Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=100)] | None


def version_of(thing: Any) -> str:
    """Return the version of an object, which is its generation; "" if it is not stored.

    The limits of a quota have no generation: equal limits are the same version.
    """
    if isinstance(thing, Quota | QuotaLimits):
        return digest(to_text(thing.own if isinstance(thing, Quota) else thing).encode())
    cls: Any = type(thing)
    part = _stored_part(cls)
    return str(getattr(getattr(thing, part) if part else thing, "generation", ""))


def require_seen(thing: Any, seen: Seen) -> None:
    """Raise PreconditionFailed if the version of a stored object is not among those that a client has seen."""
    if seen is not None and version_of(thing) not in seen:
        kind = "quota" if isinstance(thing, QuotaLimits) else type(thing).__name__.lower()
        raise PreconditionFailed(f"If-Match: the {kind} has changed since it was read; read it again and retry")


def digest(data: bytes) -> str:
    """Return a short digest for distinguishing versions."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@cache
def _stored_part(cls: Any) -> str:
    """Return the field of a detail class that holds the stored object; "" = the class is the stored object itself."""
    hints = get_type_hints(cls, include_extras=True)
    if "generation" in hints:
        return ""
    return next((name for name, hint in hints.items() if Rest.FLAT in marks_of(hint)), "")
