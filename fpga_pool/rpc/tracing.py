"""Request ids across RPC: the log lines of a scheduler carry the id of the REST request, or of Nova's, behind a call.

The ids are not covered by the signature of the call: nothing but log lines depends on them.
"""

import re
from collections.abc import Mapping
from typing import Any

from oslo_context.context import RequestContext, get_current

_NAMES = ("request_id", "global_request_id")
_ID = re.compile(r"req-[0-9A-Za-z-]{1,64}\Z")


def current_ids() -> dict[str, str]:
    """Return the ids of the request that the calling thread works on; none where it works on none."""
    context = get_current()
    return {name: value for name in _NAMES if (value := getattr(context, name, None))}


def follow(sent: Mapping[str, Any]) -> None:
    """Let the log lines of this thread carry the ids that a call was sent with, or a new id where it has none."""
    given = {name: sent.get(name) for name in _NAMES}
    good = {name: value if isinstance(value, str) and _ID.match(value) else None for name, value in given.items()}
    RequestContext(request_id=good["request_id"], global_request_id=good["global_request_id"])
