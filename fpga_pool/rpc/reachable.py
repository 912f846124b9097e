"""A server that listens again when calls do not reach it although RabbitMQ is available.

Only a listener declares the exchange and binds its queues, when its connection begins. If a peer has deleted the
exchange or a queue, no call would arrive until the process is restarted.
"""

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import oslo_messaging as messaging

from fpga_pool.rpc.identity import Gate
from fpga_pool.rpc.transport import EXCHANGE, GREETING, VERSION, Refusals, server

LOG = logging.getLogger(__name__)


class ReachableServer:
    """A server (`rpc.transport.server`) that its own process calls every `interval_s`, through RabbitMQ.

    If two calls in a row get no answer, each within half of this time, the server listens again.  `start` and `stop`
    may be called repeatedly, in turns.
    """

    def __init__(
        self,
        transport: Any,
        topic: str,
        name: str,
        endpoints: Sequence[object],
        gate: Gate,
        refusals: Refusals,
        interval_s: float,
    ) -> None:
        self._name, self._interval_s = name, interval_s
        self._new_server = partial(server, transport, topic, name, endpoints, gate, refusals)
        self._server = self._new_server()
        target = messaging.Target(exchange=EXCHANGE, topic=topic, server=name, version=VERSION)
        self._client = messaging.get_rpc_client(transport, target, timeout=interval_s / 2)
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self) -> None:
        """Start to accept calls."""
        self._server.start()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, args=(self._ended,), name="rpc-reachable", daemon=True).start()

    def stop(self) -> None:
        """Stop accepting calls."""
        self._ended.set()
        with self._lock:
            self._server.stop()

    def wait(self) -> None:
        """Wait until all accepted calls are answered."""
        self._server.wait()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(self._interval_s):
            # Twice, because the listener may reconnect later than the client after an outage of RabbitMQ.
            if not self._is_reached() and not self._is_reached():
                self._listen_again(ended)

    def _is_reached(self) -> bool:
        """Return whether a call is answered; while RabbitMQ is not available, the call waits for it."""
        try:
            self._client.call({}, GREETING)
        except (messaging.MessagingTimeout, messaging.MessageDeliveryFailure):  # no binding; no exchange
            return False
        except Exception as error:  # e.g. because the transport is closed
            LOG.debug("server %s was not called: %s", self._name, error)
        return True

    def _listen_again(self, ended: threading.Event) -> None:
        with self._lock:
            if ended.is_set():
                return
            LOG.warning("no call reaches server %s; it declares its queues again", self._name)
            try:
                self._server.stop()
                self._server.wait()
                self._server = self._new_server()  # one that has failed to listen cannot be started again
                self._server.start()
            except Exception as error:  # e.g. because a peer has declared the exchange differently
                LOG.error("server %s cannot listen: %s; next try in %g s", self._name, error, self._interval_s)  # noqa: TRY400
