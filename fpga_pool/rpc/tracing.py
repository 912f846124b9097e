"""Request ids across RPC: the log lines of a scheduler carry the id of the REST request, or of Nova's, behind a call.

So do the events that the request causes, and the commands that it has agents execute.  The ids are not covered by the
signature of the call: nothing but what people read depends on them.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oslo_context.context import RequestContext, get_current

_NAMES = ("request_id", "global_request_id")
_ID = re.compile(r"req-[0-9A-Za-z-]{1,60}\Z")


class _CallContext(RequestContext):
    """What a thread works on that answers a call."""

    #: Whether the call was sent with the id of a request; otherwise its id is one for log lines alone.
    of_request = False


def current_ids() -> dict[str, str]:
    """Return the ids of the request that the calling thread works on; none where it works on none."""
    context = get_current()
    return {name: value for name in _NAMES if (value := getattr(context, name, None))}


def follow(sent: Mapping[str, Any]) -> None:
    """Let the log lines of this thread carry the ids that a call was sent with, or a new id where it has none."""
    given = {name: sent.get(name) for name in _NAMES}
    good = {name: value if isinstance(value, str) and _ID.match(value) else None for name, value in given.items()}
    context = _CallContext(request_id=good["request_id"], global_request_id=good["global_request_id"])
    context.of_request = good["request_id"] is not None


def causing_request() -> str:
    """Return the id of the request that the call was sent for which the calling thread answers; "" = for none."""
    context = get_current()
    return context.request_id if isinstance(context, _CallContext) and context.of_request else ""


@contextmanager
def on_behalf_of(request_id: str) -> Iterator[None]:
    """Let the log lines of this thread carry the id of another request, where there is one, for as long as this lasts.

    For threads that answer calls.
    """
    before = get_current()
    if request_id:
        follow({"request_id": request_id})
    try:
        yield
    finally:
        if before is not None:
            before.update_store()
