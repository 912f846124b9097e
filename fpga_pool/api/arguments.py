"""Arguments that several resources take."""

import uuid
from typing import Any

from fpga_pool.model.exceptions import InvalidInput

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


def own_or_new_uuid(wanted: dict[str, Any]) -> str:
    """Return the uuid that a client has chosen for an object, or one."""
    return str(uuid.UUID(wanted["uuid"])) if "uuid" in wanted else str(uuid.uuid4())


def page_limit(text: str | None) -> int:
    """Return how many objects a page of a list has at most."""
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidInput(f"limit: expected 1 to {MAX_LIMIT}, found {text[:20]!r}")
    return int(text)


def page_marker(text: str | None) -> str | None:
    """Return the uuid of the last object of the page before; None for the first page."""
    if text is None:
        return None
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise InvalidInput(f"marker: expected a uuid, found {text[:64]!r}") from None
