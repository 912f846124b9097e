"""Request ids across RPC: the log lines of a scheduler carry the id of the REST or Nova request that caused a call.

So do the events that the request causes, and the resulting commands to agents.  The ids are not covered by the
signature of the call, because only texts for people depend on them.  Events get ids only from calls that the gate has
admitted from the API or from Nova, so that no agent can name an operator's request as the cause of its actions.

Traces of OSProfiler are sent in the same way, signed with separate keys (`hmac_keys` of [profiler]).  OSProfiler is
only loaded if it is enabled, because it takes 8 MB.
"""

import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oslo_config import cfg
from oslo_context.context import RequestContext, get_current

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.history import NO_CAUSE, Cause
from fpga_pool.rpc.identity import Role

# ---- Request ids

_NAMES = ("request_id", "global_request_id")
#: Roles that receive requests of users.
_ASKED = frozenset({Role.API, Role.NOVA})
_ID = re.compile(r"req-[0-9A-Za-z-]{1,60}\Z")


class _CallContext(RequestContext):
    """Context of a thread that answers a call."""

    #: Whether the call was sent for a request, by a role that receives requests; otherwise its id is for logs only.
    of_request = False


def current_ids() -> dict[str, str]:
    """Return the ids of the request that the calling thread works on, if any, and its signed trace."""
    context = get_current()
    ids = {name: value for name in _NAMES if (value := getattr(context, name, None))}
    # Within nova-scheduler, it is enabled by Nova.
    if web := sys.modules.get("osprofiler.web"):
        ids |= web.get_trace_id_headers()
    return ids


def follow(sent: Mapping[str, Any], role: str = "") -> None:
    """Use the ids that a call was sent with, or a new id if it has none, in the log lines of this thread.

    `role` is that of the sender, once the call is admitted.
    """
    given = {name: sent.get(name) for name in _NAMES}
    good = {name: value if isinstance(value, str) and _ID.match(value) else None for name, value in given.items()}
    context = _CallContext(request_id=good["request_id"], global_request_id=good["global_request_id"])
    context.of_request = good["request_id"] is not None and role in _ASKED


def causing_request() -> Cause:
    """Return the request that caused the call that this thread answers, if the API or Nova sent the call."""
    context = get_current()
    if not isinstance(context, _CallContext) or not context.of_request:
        return NO_CAUSE
    return Cause(context.request_id, context.global_request_id or "")


@contextmanager
def on_behalf_of(cause: Cause) -> Iterator[None]:
    """Use the ids of another request, if there is one, in the log lines of this thread inside the context.

    Only for threads that answer calls.
    """
    before = get_current()
    if any(cause):
        follow(cause._asdict())
    try:
        yield
    finally:
        if before is not None:
            before.update_store()


# ---- Traces of OSProfiler

PROFILER_GROUP = "profiler"
_ENABLED = cfg.BoolOpt("enabled", default=False, deprecated_name="profiler_enabled")


def enable_profiler(conf: cfg.ConfigOpts, service: str, read_again: Callable[[], object]) -> None:
    """Send the spans of this process to the destination in [profiler], if OSProfiler is enabled there.

    `read_again` reads the configuration once more, with the options of OSProfiler.
    """
    if not conf.profiler.enabled:
        return
    conf.reset()
    conf.unregister_opt(_ENABLED, PROFILER_GROUP)
    from osprofiler import notifier, opts, requests, web
    from osprofiler.drivers.base import get_driver

    opts.set_defaults(conf)
    read_again()
    wanted = conf.profiler
    at = {"project": "fpga_pool", "service": service, "host": socket.gethostname()}
    try:  # OSProfiler's initializer would print a traceback, and the service would run without traces
        notifier.set(get_driver(wanted.connection_string, context={}, conf=conf, **at).notify)
    except Exception as error:
        raise InvalidInput(f"[profiler] connection_string: {error}") from None
    web.enable(wanted.hmac_keys)
    if wanted.trace_requests:
        requests.enable()


def register_profiler(conf: cfg.ConfigOpts) -> None:
    """Register the option that enables OSProfiler."""
    conf.register_opt(_ENABLED, PROFILER_GROUP)


def is_profiled(conf: cfg.ConfigOpts, *, statements: bool = False) -> bool:
    """Return whether this process sends spans of requests (with `statements`: also of SQL statements)."""
    enabled = PROFILER_GROUP in conf and conf.profiler.enabled
    return bool(enabled and (not statements or conf.profiler.trace_sqlalchemy))


@contextmanager
def traced(sent: Mapping[str, Any], method: str, keys: str) -> Iterator[None]:
    """Record the call as a span of the trace that it was sent with, if the trace is signed with one of `keys`."""
    from osprofiler import _utils, profiler, web

    found = _utils.signed_unpack(sent.get(web.X_TRACE_INFO), sent.get(web.X_TRACE_HMAC), _utils.split(keys))
    if not isinstance(found, dict) or not isinstance(found.get("base_id"), str):
        yield
        return
    profiler.init(found["hmac_key"], base_id=found["base_id"], parent_id=found.get("parent_id"))
    try:
        with profiler.Trace("rpc", info={"rpc": {"method": method}}):
            yield
    finally:
        profiler.clean()
