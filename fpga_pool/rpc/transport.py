"""oslo.messaging as the pool uses it: options, transports, servers and clients; plain JSON, bounded waits.

Queues are classic and not durable, because no message has to survive.  Messages that a broker loses in a restart are
repeated from the database or from an agent's journal, and late ones are refused; a quorum queue would sync every
heartbeat to disk.  In a cluster of brokers, `rabbit_quorum_queue = true` keeps the queues available when one of its
nodes fails.
"""

import contextlib
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from inspect import Parameter, isfunction, signature
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import oslo_messaging as messaging
from msgspec import Meta
from oslo_config import cfg
from oslo_messaging import opts
from oslo_messaging._drivers import amqpdriver

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import (
    FpgaPoolError,
    HostTaken,
    InvalidInput,
    LateMessage,
    OtherRun,
    StaleEpoch,
    Unauthenticated,
)
from fpga_pool.model.fields import Count, Duration, Text
from fpga_pool.rpc.backlog import BoundedServer
from fpga_pool.rpc.identity import Gate, Role
from fpga_pool.rpc.tracing import follow, is_profiled, traced
from fpga_pool.rpc.urls import url_named

# ---- Options

GROUP = "oslo_messaging_rabbit"

DEFAULTS: dict[str, Any] = {
    # A peer whose connection breaks silently is noticed within this time, not within a minute.
    "heartbeat_timeout_threshold": 10,
    # The longest pause between two attempts to reach a broker that is not available.
    "rabbit_interval_max": 5,
    # A caller may name an answer queue that does not exist. Each such answer would block a thread for a minute.
    "direct_mandatory_flag": False,
    # Calls for which a server has no room (`backlog`) stay in RabbitMQ, which drops those whose callers gave up.
    "rabbit_qos_prefetch_count": 256,
}

#: A listening thread wakes up this long after each message, then after twice the time and so on, for requeued messages.
#: Calls are not requeued, and the library's 1 ms, for which there is no option, means ten wake-ups per message.
LOOK_AGAIN_S = 0.25


def set_defaults(conf: cfg.ConfigOpts) -> None:
    """Set the pool's defaults for the options that the driver of a transport reads, in a process of the pool."""
    amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = LOOK_AGAIN_S
    for name, value in DEFAULTS.items():
        with contextlib.suppress(cfg.NoSuchOptError, cfg.NoSuchGroupError):
            conf.set_default(name, value, GROUP)


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return all of oslo.messaging's options, for the sample configuration."""
    groups: list[tuple[str | None, list[cfg.Opt]]] = opts.list_opts()
    for group, options in groups:
        for option in options:
            if group == GROUP and option.name in DEFAULTS:
                option.default = DEFAULTS[option.name]
    return [(group, list(options)) for group, options in groups]


# ---- Calls that are defined by the signatures of methods, on the server and on the client

T = TypeVar("T")

#: Bounded types that replace unbounded ones: for names, reasons and ids; epochs, attempts and limits; durations.
BOUNDS: dict[Any, Any] = {str: Text, int: Count, float: Duration}
#: Largest length of lists and mappings, which otherwise only the size of RabbitMQ's messages limits.
_MOST_ITEMS = 100_000


def bounded(hint: Any) -> Any:
    """Return a type of arguments in which each value has bounds, also within lists and mappings."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        return Union[tuple(bounded(argument) for argument in arguments)]  # noqa: UP007
    if origin in (list, dict, Sequence, Mapping):
        items = origin[tuple(bounded(argument) for argument in arguments)]
        return Annotated[items, Meta(max_length=_MOST_ITEMS)]
    return BOUNDS.get(hint, hint)


def typed(method: Callable[..., T]) -> Callable[..., Any]:
    """Wrap a method of an endpoint so that it takes and returns plain values.

    Its arguments, except the context, are converted as its annotations say.  Raises InvalidInput if one is unknown, of
    another type, out of bounds (`BOUNDS`, if its annotation has none), or missing without a default.
    """
    hints = get_type_hints(method, include_extras=True)
    parameters = list(signature(method).parameters.values())[2:]  # without the endpoint and the context
    fields: list[Any] = [
        (name, hint) if parameter.default is Parameter.empty else (name, hint, parameter.default)
        for parameter in parameters
        for name in [parameter.name]
        for hint in [bounded(hints.get(name, Any))]
    ]
    arguments = msgspec.defstruct(method.__name__, fields, kw_only=True, forbid_unknown_fields=True)

    @wraps(method)
    def call(endpoint: object, context: object, **given: Any) -> Any:
        return to_plain(method(endpoint, context, **msgspec.structs.asdict(read(arguments, given, method.__name__))))

    return call


def calls(cls: type[T]) -> type[T]:
    """Turn each public method of a class, which has no body, into a call by `_call`, with its name and arguments.

    `_call` also gets the type of the answer.
    """
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _calling(method))
    return cls


def _calling(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters, answer_type = signature(method), get_type_hints(method)["return"]

    @wraps(method)
    def call(client: Any, *given: Any, **named: Any) -> Any:
        bound = parameters.bind(client, *given, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        return client._call(answer_type, method.__name__, **dict(arguments))  # noqa: SLF001

    return call


# ---- Transports, servers and clients

LOG = logging.getLogger(__name__)

#: Exchange and topics.
EXCHANGE = "fpga_pool"
SCHEDULER_TOPIC, AGENT_TOPIC = "fpga_pool.scheduler", "fpga_pool.agent"
LIFE_SIGNS_TOPIC = f"{SCHEDULER_TOPIC}.life_signs"
#: Version of the interfaces of this release, which endpoints implement and clients request.
VERSION = "1.0"

#: Modules of the errors that keep their classes when they are sent to clients.
ERROR_MODULES = ["fpga_pool.model.exceptions"]

#: Base class of the errors that keep a call from being answered.
MessagingError = messaging.MessagingException

#: Those of them that tell nothing about the other side, which may be unavailable or slow.
NO_ANSWER = (messaging.MessagingTimeout, messaging.MessageDeliveryFailure)

#: Context of a call: the proof of its sender, and the ids of the request.
Context = dict[str, Any]

#: Target of all endpoints.
TARGET = messaging.Target(version=VERSION)


def answers(method: Callable[..., object]) -> Callable[..., Any]:
    """Make a method of an endpoint callable by RPC, with the types of its signature (`typed`).

    Domain errors are returned to the caller; they are not failures of the server.
    """
    answering: Callable[..., Any] = messaging.expose(messaging.expected_exceptions(FpgaPoolError)(typed(method)))
    return answering


def transport(conf: cfg.ConfigOpts, url: str | None = None) -> Any:
    """Return the RPC transport of `url`, or of the option transport_url; ``inprocess://`` stays within the process.

    `conf` must be the process's own `cfg.CONF`, because oslo.messaging 18 registers some of its options only there.
    """
    messaging.set_transport_defaults(EXCHANGE)
    with url_named("[DEFAULT] transport_url"):
        made = guest_transport(conf, url)
    set_defaults(conf)
    return made


def guest_transport(conf: cfg.ConfigOpts, url: str | None = None) -> Any:
    """Return the RPC transport for a process that is not part of the pool; the process keeps its transport defaults."""
    return messaging.get_rpc_transport(conf, url=url, allowed_remote_exmods=ERROR_MODULES)


class Refusals:
    """Counts of refused calls of a server, by error code; threads may share it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._shown: dict[str, Allowance] = {}
        self._lock = threading.Lock()

    def note(self, code: str) -> int:
        """Count one refusal; return the number of refusals with this code."""
        with self._lock:
            self._counts[code] += 1
            return self._counts[code]

    def is_shown(self, code: str) -> bool:
        """Return whether one more may be logged: of each code ten at once, then one per ten seconds."""
        with self._lock:
            allowance = self._shown.setdefault(code, Allowance(at_once=10, per_s=0.1))
            return allowance.take(time.monotonic())

    def counts(self) -> dict[str, int]:
        """Return the number of refusals by code."""
        with self._lock:
            return dict(self._counts)


#: Errors that mean that a peer has sent a wrong message, unless InvalidInput is about a tenant's request.
_REFUSED = (InvalidInput, HostTaken, LateMessage, StaleEpoch)

#: Method that every process may call unsigned.
GREETING = "greet"
#: Method for several calls in one message (`rpc.gathering`), and the number of threads for all but the first of them.
TOGETHER, _TOGETHER_THREADS = "together", 32

_METHOD, _VERSION = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII), re.compile(r"\d{1,4}\.\d{1,4}", re.ASCII)


class _Greeter:
    """Returns the run of a server for which calls must be signed."""

    target = TARGET

    def __init__(self, name: str, gate: Gate) -> None:
        self._name, self._gate = name, gate

    @answers
    def greet(self, context: dict[str, Any]) -> dict[str, str]:
        return {"name": self._name, "run": self._gate.run}


class Dispatcher(messaging.RPCDispatcher):
    """Admits only signed calls; counts refused calls, and logs them in one line each, as long as they are few."""

    def __init__(
        self, endpoints: Sequence[object], topic: str, gate: Gate, refusals: Refusals, trace_keys: str = ""
    ) -> None:
        super().__init__(list(endpoints), None, messaging.ExplicitRPCAccessPolicy)
        self._topic, self._gate = topic, gate
        self._refusals, self._trace_keys = refusals, trace_keys
        self._threads = ThreadPoolExecutor(_TOGETHER_THREADS, "rpc-together")

    def dispatch(self, incoming: Any) -> Any:
        message = incoming.message
        silence_s, incoming.client_timeout = incoming.client_timeout, None
        follow(incoming.ctxt)
        try:
            _require_call(incoming)
            if message["method"] != GREETING:
                self._gate.admit(self._topic, incoming.ctxt, message["method"], message["args"])
                follow(incoming.ctxt, incoming.ctxt.get("role", ""))
                incoming.client_timeout = silence_s if silence_s in range(2, 3600) else None  # for signs of life
            parts = _parts(incoming)
        except (InvalidInput, Unauthenticated) as error:
            self._note(error.code, incoming, error)
            raise messaging.ExpectedException from error
        except OtherRun as error:  # the peer will repeat it
            LOG.debug("refused %s: %s", message["method"], error)
            raise messaging.ExpectedException from error
        return self._answer_all(parts) if parts else self._answer(incoming)

    def _answer_all(self, parts: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the answer, or the error, of each call of a message."""
        others = [self._threads.submit(self._outcome, part) for part in parts[1:]]
        return [self._outcome(parts[0]), *(other.result() for other in others)]

    def _outcome(self, part: Any) -> dict[str, Any]:
        follow(part.ctxt, part.ctxt["role"])
        try:
            _require_call(part)
            self._gate.require_role(part.ctxt["role"], part.message["method"])
            return {"answer": self._answer(part)}
        except messaging.ExpectedException as expected:
            error = expected.exc_info[1]
        except FpgaPoolError as refused:
            self._note(refused.code, part, refused)
            error = refused
        except Exception:
            LOG.exception("call of %s failed", part.message["method"])
            error = FpgaPoolError("internal error in the pool; the log of its scheduler has the details")
        return {"error": type(error).__name__, "message": str(error)}

    def _answer(self, incoming: Any) -> Any:
        try:
            if not self._trace_keys:
                return super().dispatch(incoming)
            with traced(incoming.ctxt, incoming.message["method"], self._trace_keys):
                return super().dispatch(incoming)
        except messaging.UnsupportedVersion as error:
            self._note("fpga_pool.unsupported_version", incoming, error)
            raise messaging.ExpectedException from error
        except messaging.NoSuchMethod as error:
            self._note("fpga_pool.no_such_method", incoming, error)
            raise messaging.ExpectedException from error
        except messaging.ExpectedException as expected:
            cause = expected.exc_info[1]
            is_tenants = isinstance(cause, InvalidInput) and incoming.ctxt.get("role") == Role.API
            if isinstance(cause, _REFUSED) and not is_tenants:
                self._note(cause.code, incoming, cause)
            raise

    def _note(self, code: str, incoming: Any, error: BaseException) -> None:
        count = self._refusals.note(code)
        level = logging.WARNING if self._refusals.is_shown(code) else logging.DEBUG
        method = str(incoming.message.get("method"))[:200]
        LOG.log(level, "refused %s: %s (%s: %d so far)", _line(method), _line(str(error)), code, count)


def _parts(incoming: Any) -> list[Any]:
    """Return the calls in a TOGETHER call, each in the form that the dispatcher expects; none for other calls."""
    if incoming.message["method"] != TOGETHER:
        return []
    sender, calls = {key: incoming.ctxt[key] for key in ("role", "name")}, incoming.message["args"].get("calls")
    return [
        SimpleNamespace(ctxt={**ids, **sender}, message={**call, "version": VERSION}, client_timeout=None)
        for ids, call in read(list[tuple[dict[str, str], dict[str, Any]]], calls, "calls")
    ]


def _require_call(incoming: Any) -> None:
    """Raise InvalidInput for a message that oslo.messaging cannot dispatch as a call, or cannot answer."""
    queue, message = getattr(incoming, "reply_q", None), incoming.message
    if queue is not None and not (isinstance(queue, str) and len(queue.encode()) <= 255):  # AMQP's limit
        incoming.orig_msg_id = None  # so that no answer is sent
        raise InvalidInput(f"_reply_q: expected the name of a queue, found {queue!r:.200}")
    for name, form in (("method", _METHOD), ("version", _VERSION)):
        if not (isinstance(message.get(name), str) and form.fullmatch(message[name])):
            raise InvalidInput(f"{name}: expected a {name}, found {message.get(name)!r:.200}")
    arguments = message.get("args")
    if not isinstance(arguments, dict) or "context" in arguments:
        raise InvalidInput(f"args: expected arguments by name, without context, found {arguments!r:.200}")


def _line(text: str) -> str:
    """Return a text from an untrusted sender as a part of one line of a log."""
    return text[:500] if text[:500].isprintable() else repr(text[:500])


#: Messages that oslo.messaging refuses and only logs: by logger, the start of the log message, and the pool's code.
_REFUSED_BELOW = {
    "oslo.messaging._drivers.impl_rabbit": ("Failed to process message", "fpga_pool.unreadable_message"),
    "oslo_messaging._drivers.amqpdriver": ("ignoring duplicate message", "fpga_pool.duplicate_message"),
}


class _Below(logging.Filter):
    """Counts messages of a logger; passes few of them on, in one line each, with the reason but no traceback."""

    def __init__(self, refusals: Refusals, said: str, code: str) -> None:
        super().__init__()
        self._refusals, self._said, self._code = refusals, said, code

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.startswith(self._said):
            return True
        count = self._refusals.note(self._code)
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text = f"{text}: {type(error).__name__}: {error}"
        record.msg, record.args, record.exc_info = "%s (%s: %d so far)", (_line(text), self._code, count), None
        return self._refusals.is_shown(self._code)


def limit_unreadable(refusals: Refusals) -> None:
    """Count unreadable and duplicate messages that this process receives from RabbitMQ, and log some of them."""
    for logger, (said, code) in _REFUSED_BELOW.items():
        logging.getLogger(logger).addFilter(_Below(refusals, said, code))


def server(
    transport: Any, topic: str, name: str, endpoints: Sequence[object], gate: Gate, refusals: Refusals | None = None
) -> Any:
    """Return a server that is not yet started; `name` addresses only this server, the topic any server of its kind."""
    target = messaging.Target(exchange=EXCHANGE, topic=topic, server=name)
    trace_keys = transport.conf.profiler.hmac_keys if is_profiled(transport.conf) else ""
    dispatcher = Dispatcher([*endpoints, _Greeter(name, gate)], topic, gate, refusals or Refusals(), trace_keys)
    return BoundedServer(transport, target, dispatcher, "threading")
