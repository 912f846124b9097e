"""Casts that a server reads from RabbitMQ many at a time, with a tenth of the CPU time of other calls.

oslo.messaging spends a millisecond on each message that it receives, most of it in Python: it waits for one at a time,
with a retry, a lock and a timeout around each, acknowledges it, and hands it to another thread.  Here, one loop of
kombu, oslo.messaging's own client library, takes all messages that have arrived from the connection, without
acknowledgements.  So casts can get lost, and are not answered; they are signed and admitted like calls.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import kombu
import oslo_messaging as messaging
from kombu.transport.pyamqp import Transport
from oslo_messaging._drivers.common import PURPOSE_LISTEN, deserialize_msg

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.rpc.identity import Gate
from fpga_pool.rpc.transport import EXCHANGE, Dispatcher, Refusals

LOG = logging.getLogger(__name__)

#: How long a step waits for messages when none is left, and how long it takes messages at most, in seconds.
LAST_S, STEP_S = 0.01, 1.0
#: After this time another connection is opened, because only a new one declares exchange, queue and binding, which a
#: peer may have deleted.
CONNECTION_S = 30.0
#: Errors of a connection to RabbitMQ, or of a channel.
_BROKEN = (*Transport.connection_errors, *Transport.channel_errors, messaging.MessagingException)
#: Prefix of oslo.messaging for the parts of a context.
_CONTEXT = "_context_"
#: Code that counts messages which cannot be decoded.
_UNREADABLE = "fpga_pool.unreadable_message"


class CastReader:
    """Reads the casts to a topic, which other processes may read as well; one thread uses it."""

    def __init__(self, transport: Any, topic: str, endpoints: Sequence[object], gate: Gate, refusals: Refusals) -> None:
        self._driver, self._topic, self._refusals = transport._driver, topic, refusals  # noqa: SLF001
        self._dispatcher = Dispatcher(endpoints, topic, gate, refusals)
        #: oslo.messaging's connection, and the one below it.
        self._connection: Any = None
        self._amqp: Any = None
        self._consumer: kombu.Consumer | None = None
        self._opened_s, self._read_s = 0.0, time.monotonic()

    def age_s(self) -> float:
        """Return the seconds since the end of the last step that reached RabbitMQ, or since the start."""
        return time.monotonic() - self._read_s

    def read(self) -> None:
        """Carry out the casts that have arrived; wait while RabbitMQ is not available.

        Raises ServiceUnavailable if the connection broke; the next step opens another one.
        """
        try:
            if time.monotonic() - self._opened_s > CONNECTION_S:
                self._open()
            self._drain()
        except _BROKEN as error:
            self.close()
            raise ServiceUnavailable(f"casts to {self._topic} cannot be read: {error}") from error
        self._read_s = time.monotonic()

    def close(self) -> None:
        """Close the connection; the next step opens another one."""
        connection, self._connection, self._consumer, self._opened_s = self._connection, None, None, 0.0
        if connection is not None:
            with contextlib.suppress(Exception):  # it may be broken
                connection.close()

    def _open(self) -> None:
        if self._consumer is not None:
            self._consumer.cancel()  # what has been delivered until then is still carried out
            self._drain()
        self.close()
        self._connection = self._driver._get_connection(PURPOSE_LISTEN)  # noqa: SLF001
        self._connection.declare_topic_consumer(EXCHANGE, self._topic)
        channel = self._connection.channel
        self._consumer = kombu.Consumer(
            channel,
            [kombu.Queue(self._topic)],
            no_ack=True,
            auto_declare=False,  # declared above
            on_message=self._carry_out,
        )
        self._consumer.consume()
        # kombu's own connection would quietly connect again, without a consumer.
        self._amqp = channel.connection
        self._opened_s = time.monotonic()

    def _drain(self) -> None:
        until_s = time.monotonic() + STEP_S
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < until_s:
                self._amqp.drain_events(timeout=LAST_S)
        self._amqp.heartbeat_tick()

    def _carry_out(self, message: kombu.Message) -> None:
        try:
            plain = deserialize_msg(message.decode())
            context = {name.removeprefix(_CONTEXT): plain[name] for name in plain if name.startswith(_CONTEXT)}
            incoming = SimpleNamespace(message=plain, ctxt=context, client_timeout=None)
        except Exception as error:  # any error that a decoder raises for the message of an unknown sender
            count = self._refusals.note(_UNREADABLE)
            level = logging.ERROR if self._refusals.is_shown(_UNREADABLE) else logging.DEBUG
            LOG.log(level, "skipped a cast to %s: %.300r (%s: %d so far)", self._topic, error, _UNREADABLE, count)
            return
        try:
            self._dispatcher.dispatch(incoming)
        except messaging.ExpectedException:
            LOG.debug("refused a cast to %s", self._topic)  # counted, and logged if such casts are few
        except Exception:
            LOG.exception("a cast to %s failed", self._topic)
