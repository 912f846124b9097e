"""Signed calls, in separate messages or several in one message.

Each message costs both sides a millisecond of CPU time before it is processed.  Calls that are made while others are in
progress are gathered, and share the next message and one signature.  A single call is sent immediately.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import oslo_messaging as messaging

from fpga_pool.model import exceptions
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.rpc.bounded import GRACE_S
from fpga_pool.rpc.identity import Identity, Signer
from fpga_pool.rpc.transport import EXCHANGE, GREETING, TOGETHER, VERSION, MessagingError

#: Number of messages in progress from which on calls are gathered, and maximum number of calls in one message.
UNDER_WAY, MOST = 2, 32
#: Longest time that a call waits to be sent with others, because the messages in progress may be slow.
PATIENCE_S = 0.05
#: Calls that take a few milliseconds, unless they wait for changes.
SHORT = frozenset(
    [
        *("batches", "batch_detail", "batch_jobs", "cancel_batch", "confirm_results", "create_batch", "job"),
        *("cards", "card", "functions", "gangs", "gang", "hosts", "quota", "slots", "slot", "tasks", "task", "tickets"),
    ]
)
#: Maximum number of jobs of a batch that is stored within milliseconds.
FEW_JOBS = 16
#: An answer with this many values takes a while, and other calls would wait for it. After such an answer, calls of its
#: method are sent in separate messages for this many seconds.
LONG_ANSWER, LONG_S = 256, 10.0


class SignedClient:
    """A client of the servers of a topic, which signs its calls; threads may share it."""

    def __init__(self, transport: Any, topic: str, identity: Identity, timeout_s: float) -> None:
        target = messaging.Target(exchange=EXCHANGE, topic=topic, version=VERSION)
        self._client = messaging.get_rpc_client(transport, target, timeout=timeout_s)
        self._topic = topic
        self._signer = Signer(identity)
        self.identity = identity

    def greet(self, server: str | None, timeout_s: float) -> tuple[str, str]:
        """Return name and run of a server (None = of any server)."""
        answer = self._client.prepare(server=server, timeout=timeout_s).call({}, GREETING)
        return str(answer["name"]), str(answer["run"])

    def call(
        self,
        server: str | None,
        run: str,
        method: str,
        arguments: dict[str, Any],
        ids: Mapping[str, str],
        **options: float | None,
    ) -> Any:
        """Call a method with plain arguments, for the request with these `ids` (`tracing.current_ids`).

        `options` are those of oslo.messaging's `prepare`.
        """
        context = self._signer.context(self._topic, run, method, arguments) | dict(ids)
        return self._client.prepare(server=server, **options).call(context, method, **arguments)

    def cast_to_all(self, method: str) -> None:
        """Send a call without arguments to all servers of the topic, without answers."""
        self._client.prepare(fanout=True).cast(self._signer.context(self._topic, "", method, {}), method)

    def cast(self, topic: str, method: str, arguments: dict[str, Any]) -> None:
        """Send a call to any reader of another topic (`casts.CastReader`), without an answer."""
        context = self._signer.context(topic, "", method, arguments)
        self._client.prepare(topic=topic).cast(context, method, **arguments)


@dataclass(slots=True, eq=False)
class Call:
    """A call that may be sent together with others."""

    method: str
    arguments: dict[str, Any]
    ids: Mapping[str, str]
    #: Set when the waiting thread is to send a message or can take the answer.
    answered: threading.Event = field(default_factory=threading.Event)
    #: The calls that its thread is to send.
    group: "Sequence[Call]" = ()
    answer: Any = None
    error: BaseException | None = None


class Gatherer:
    """Makes calls with `ask`, gathered with others that are made while messages are in progress; thread-safe.

    `ask` gets a method, its arguments, and the ids of the request; a call of the method `TOGETHER` contains several.
    """

    def __init__(self, ask: Callable[[str, dict[str, Any], Mapping[str, str]], Any], timeout_s: float) -> None:
        self._ask, self._timeout_s = ask, timeout_s
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._under_way = 0
        #: By method, until when its calls are sent in separate messages.
        self._alone_until_s: dict[str, float] = {}

    def takes(self, method: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the call is expected to be short, so that others can wait for its answer."""
        if method not in SHORT or arguments.get("wait_s") or self._alone_until_s.get(method, 0.0) > time.monotonic():
            return False
        return method != "create_batch" or len(arguments["request"]["jobs"]) <= FEW_JOBS

    def call(self, method: str, arguments: dict[str, Any], ids: Mapping[str, str]) -> Any:
        """Return the answer of a call; raise the error that it is answered with, or that keeps it from an answer."""
        mine = Call(method, arguments, ids)
        with self._lock:
            self._waiting.append(mine)
            group = self._next(mine) if self._under_way < UNDER_WAY else ()
        if not group and not mine.answered.wait(PATIENCE_S):
            with self._lock:
                group = self._next(mine) if mine in self._waiting else ()
        if not group and not mine.answered.wait(self._timeout_s + GRACE_S):
            raise messaging.MessagingTimeout(f"no response within {self._timeout_s:g} s")
        if group or mine.group:
            self._send(group or mine.group)
        if mine.error is not None:
            raise mine.error
        if isinstance(mine.answer, list) and len(mine.answer) >= LONG_ANSWER:
            self._alone_until_s[method] = time.monotonic() + LONG_S
        return mine.answer

    def _next(self, first: Call) -> Sequence[Call]:
        """Take the calls of the next message from those that wait: `first`, and others up to MOST."""
        self._waiting.remove(first)
        self._under_way += 1
        return [first, *(self._waiting.popleft() for _ in range(min(len(self._waiting), MOST - 1)))]

    def _send(self, group: Sequence[Call]) -> None:
        self._carry_out(group)
        with self._lock:
            self._under_way -= 1
            others = self._next(self._waiting[0]) if self._waiting and self._under_way < UNDER_WAY else ()
        if others:
            others[0].group = others
            others[0].answered.set()
        for call in group:
            call.answered.set()

    def _carry_out(self, group: Sequence[Call]) -> None:
        """Send the calls of one message, and give each its answer or its error."""
        try:
            if len(group) == 1:
                group[0].answer = self._ask(group[0].method, group[0].arguments, group[0].ids)
            else:
                calls = [(dict(call.ids), {"method": call.method, "args": call.arguments}) for call in group]
                for call, part in zip(group, self._ask(TOGETHER, {"calls": calls}, {}), strict=True):
                    call.answer, call.error = part.get("answer"), _error(part) if "error" in part else None
        except (MessagingError, FpgaPoolError) as error:
            _fail(group, error)
        except Exception as error:
            if len(group) == 1:
                _fail(group, error)
                return
            # One of them cannot be signed or encoded, so nothing was sent. The others are sent without it.
            for call in group:
                self._carry_out([call])
        except BaseException as error:
            _fail(group, error)


def _fail(group: Sequence[Call], error: BaseException) -> None:
    for call in group:
        call.error = error


def _error(part: Mapping[str, Any]) -> FpgaPoolError:
    """Return the error that a call was answered with."""
    kind = getattr(exceptions, str(part["error"]), FpgaPoolError)
    known: type[FpgaPoolError] = kind if isinstance(kind, type) and issubclass(kind, FpgaPoolError) else FpgaPoolError
    return known(part["message"])
