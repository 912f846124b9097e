"""oslo.messaging as the pool uses it: options, transports, servers and clients; plain JSON, bounded waits.

Queues stay classic and are not durable: no message carries anything that must survive.  What a broker forgets when it
is restarted is repeated from the database or from an agent's journal, and what is late is refused; a quorum queue would
sync every heartbeat to disk to keep it.  In a cluster of brokers, `rabbit_quorum_queue = true` keeps the queues
answering when one of its nodes ends.
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
    # A peer that is cut off without a word is noticed within this time, not within a minute.
    "heartbeat_timeout_threshold": 10,
    # The longest pause between two attempts to reach a broker that is away.
    "rabbit_interval_max": 5,
    # A caller may name a queue for the answer that does not exist. Each such answer would hold a thread for a minute.
    "direct_mandatory_flag": False,
    # What a server has no room for (`backlog`) stays in RabbitMQ, which drops calls that nobody waits for any more.
    "rabbit_qos_prefetch_count": 256,
}

#: A thread that listens wakes this soon after each message, then after twice the time and so on, for messages that
#: others have put back.  Calls have none, and the library's 1 ms, for which there is no option, are ten wake-ups each.
LOOK_AGAIN_S = 0.25


def set_defaults(conf: cfg.ConfigOpts) -> None:
    """Set the pool's defaults for what the driver of a transport reads, within a process of the pool."""
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


# ---- Calls by the signature of a method: of the one that takes them, and of the one that makes them

T = TypeVar("T")

#: Bounds of values whose types have none of their own: of names, reasons and ids; of epochs, attempts and limits.
BOUNDS: dict[Any, Any] = {str: Text, int: Count, float: Duration}
#: Of lists and mappings, which are as long as RabbitMQ's messages otherwise.
_MOST_ITEMS = 100_000


def bounded(hint: Any) -> Any:
    """Return a type of arguments in which each value has bounds, within lists and mappings, too."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        return Union[tuple(bounded(argument) for argument in arguments)]  # noqa: UP007
    if origin in (list, dict, Sequence, Mapping):
        items = origin[tuple(bounded(argument) for argument in arguments)]
        return Annotated[items, Meta(max_length=_MOST_ITEMS)]
    return BOUNDS.get(hint, hint)


def typed(method: Callable[..., T]) -> Callable[..., Any]:
    """Return a method of an endpoint that is called with plain values, and answers with some.

    Its arguments, but for the context, are read as its annotations say: InvalidInput where one is unknown, of no such
    value, out of bounds (`BOUNDS`, where its annotation has none), or missing without a default.
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
    """Make each public method of a class, which has no body, a call: of its name, with its arguments, by `_call`.

    `_call` gets the type of the answer, too.
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
SCHEDULER_TOPIC = "fpga_pool.scheduler"
AGENT_TOPIC = "fpga_pool.agent"
#: Version of the interfaces of this release: what endpoints implement, and clients ask for.
VERSION = "1.0"

#: Domain errors cross the wire as themselves.
ERROR_MODULES = ["fpga_pool.model.exceptions"]

#: Whatever keeps a call from being answered.
MessagingError = messaging.MessagingException

#: The two of them that say nothing about the other side: it may be away, or slow.
NO_ANSWER = (messaging.MessagingTimeout, messaging.MessageDeliveryFailure)

#: What comes with a call: proof of its sender, and the ids of the request.
Context = dict[str, Any]

#: What an endpoint implements.
TARGET = messaging.Target(version=VERSION)


def answers(method: Callable[..., object]) -> Callable[..., Any]:
    """Make a method of an endpoint callable from outside, by its signature (`rpc.transport`).

    Domain errors are answers, not failures of the server.
    """
    answering: Callable[..., Any] = messaging.expose(messaging.expected_exceptions(FpgaPoolError)(typed(method)))
    return answering


def transport(conf: cfg.ConfigOpts, url: str | None = None) -> Any:
    """Return the RPC transport of `url`, or of the option transport_url; ``inprocess://`` stays within the process.

    `conf` must be the process's own `cfg.CONF`: oslo.messaging 18 registers some of the options it reads with no other.
    """
    messaging.set_transport_defaults(EXCHANGE)
    with url_named("[DEFAULT] transport_url"):
        made = guest_transport(conf, url)
    set_defaults(conf)
    return made


def guest_transport(conf: cfg.ConfigOpts, url: str | None = None) -> Any:
    """Return the same within a process that is not the pool's: its own transport defaults stay unchanged."""
    return messaging.get_rpc_transport(conf, url=url, allowed_remote_exmods=ERROR_MODULES)


class Refusals:
    """Counts of refused calls of a server, by error code; threads may share it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._shown: dict[str, Allowance] = {}
        self._lock = threading.Lock()

    def note(self, code: str) -> int:
        """Count one; return how many of these there were."""
        with self._lock:
            self._counts[code] += 1
            return self._counts[code]

    def is_shown(self, code: str) -> bool:
        """Return whether one more may be logged: ten at once, then one per ten seconds of each code."""
        with self._lock:
            allowance = self._shown.setdefault(code, Allowance(at_once=10, per_s=0.1))
            return allowance.take(time.monotonic())

    def counts(self) -> dict[str, int]:
        """Return how many of each there were."""
        with self._lock:
            return dict(self._counts)


#: Errors that say of a message that it should not have been sent: not of a tenant's wish, but of a peer.
_REFUSED = (InvalidInput, HostTaken, LateMessage, StaleEpoch)

#: Called unsigned, by every process.
GREETING = "greet"
#: Several calls in one message (`rpc.gathering`): so many at once are carried out besides the first of each message.
TOGETHER, _TOGETHER_THREADS = "together", 32

_METHOD, _VERSION = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII), re.compile(r"\d{1,4}\.\d{1,4}", re.ASCII)


class _Greeter:
    """Tells for which run of a server calls are to be signed."""

    target = TARGET

    def __init__(self, name: str, gate: Gate) -> None:
        self._name, self._gate = name, gate

    @answers
    def greet(self, context: dict[str, Any]) -> dict[str, str]:
        return {"name": self._name, "run": self._gate.run}


class _Dispatcher(messaging.RPCDispatcher):
    """Lets in signed calls only; counts refused calls and logs them, one line each, as long as they are few."""

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
                incoming.client_timeout = silence_s if silence_s in range(2, 3600) else None  # its caller hears of it
            parts = _parts(incoming)
        except (InvalidInput, Unauthenticated) as error:
            self._note(error.code, incoming, error)
            raise messaging.ExpectedException from error
        except OtherRun as error:  # a peer that will repeat it
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
    """Return the calls that came together in one, each as the dispatcher wants it; none of another call."""
    if incoming.message["method"] != TOGETHER:
        return []
    sender, calls = {key: incoming.ctxt[key] for key in ("role", "name")}, incoming.message["args"].get("calls")
    return [
        SimpleNamespace(ctxt={**ids, **sender}, message={**call, "version": VERSION}, client_timeout=None)
        for ids, call in read(list[tuple[dict[str, str], dict[str, Any]]], calls, "calls")
    ]


def _require_call(incoming: Any) -> None:
    """Raise InvalidInput for a message of which oslo.messaging cannot make a call, or that it cannot answer."""
    queue, message = getattr(incoming, "reply_q", None), incoming.message
    if queue is not None and not (isinstance(queue, str) and len(queue.encode()) <= 255):  # as long as AMQP has them
        incoming.orig_msg_id = None  # and so it gets no answer
        raise InvalidInput(f"_reply_q: expected the name of a queue, found {queue!r:.200}")
    for name, form in (("method", _METHOD), ("version", _VERSION)):
        if not (isinstance(message.get(name), str) and form.fullmatch(message[name])):
            raise InvalidInput(f"{name}: expected a {name}, found {message.get(name)!r:.200}")
    arguments = message.get("args")
    if not isinstance(arguments, dict) or "context" in arguments:
        raise InvalidInput(f"args: expected arguments by name, without context, found {arguments!r:.200}")


def _line(text: str) -> str:
    """Return a text of a stranger as a part of one line of a log."""
    return text[:500] if text[:500].isprintable() else repr(text[:500])


#: Messages that oslo.messaging itself refuses and only logs: by logger the beginning of the log message, and our code.
_REFUSED_BELOW = {
    "oslo.messaging._drivers.impl_rabbit": ("Failed to process message", "fpga_pool.unreadable_message"),
    "oslo_messaging._drivers.amqpdriver": ("ignoring duplicate message", "fpga_pool.duplicate_message"),
}


class _Below(logging.Filter):
    """Counts messages of a log; lets few of them through, one line each, with the reason but no traceback."""

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
    """Count what arrives at this process from RabbitMQ and is no message, or the same one again; log some of it."""
    for logger, (said, code) in _REFUSED_BELOW.items():
        logging.getLogger(logger).addFilter(_Below(refusals, said, code))


def server(
    transport: Any, topic: str, name: str, endpoints: Sequence[object], gate: Gate, refusals: Refusals | None = None
) -> Any:
    """Return a server that is not yet started; `name` addresses it alone, the topic any of its kind."""
    target = messaging.Target(exchange=EXCHANGE, topic=topic, server=name)
    trace_keys = transport.conf.profiler.hmac_keys if is_profiled(transport.conf) else ""
    dispatcher = _Dispatcher([*endpoints, _Greeter(name, gate)], topic, gate, refusals or Refusals(), trace_keys)
    return BoundedServer(transport, target, dispatcher, "threading")
