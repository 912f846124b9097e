"""The data port of a responder: one listening socket and an event loop in a separate native thread."""

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fpga_pool.model.exceptions import ServiceUnavailable, TransferRefused
from fpga_pool.transfer.connections import Connection, Connections, Held
from fpga_pool.transfer.handler import TokenLedger, TransferHandler
from fpga_pool.transfer.port import Door, Limits, Port, TokenBucket, has_left
from fpga_pool.transfer.session import REASONS, Session
from fpga_pool.transfer.stream import FrameStream
from fpga_pool.transfer.tokens import Verifier, source_of

LOG = logging.getLogger(__name__)

_EVENTS = ("connections", "delivered", "received_bytes", "sent_bytes", "staged")
_WORKERS = 8
_BACKLOG = 256
#: The kernel reports a connection once its client has sent data, or after about this time, in seconds.
_DEFER_S = 1
_ACCEPT_PAUSE_S = 0.1
#: Maximum number of connections that are accepted at once, if their clients have already disconnected.
_LEFT_AT_ONCE = 16


class DataServer:
    """Receives inputs and delivers results; independent of slots (see `handler.TransferHandler`).

    `start` and `stop` may be called once each, from any thread.
    """

    def __init__(
        self,
        handler: TransferHandler,
        ledger: TokenLedger,
        *,
        host: str,
        public_keys: Sequence[Ed25519PublicKey],
        bind_address: str,
        bind_port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        ingress_bps: float = math.inf,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bind = (bind_address, bind_port)
        self._ssl_context = ssl_context
        self._limits = limits or Limits()
        self._counters = Counter(dict.fromkeys((*_EVENTS, *REASONS), 0))
        self._port = Port(
            host=host,
            verifier=Verifier(public_keys, host),
            handler=handler,
            ledger=ledger,
            clock=clock,
            limits=self._limits,
            ingress=TokenBucket(ingress_bps, time.monotonic()),
            workers=ThreadPoolExecutor(_WORKERS, thread_name_prefix=f"data-{host}"),
            counters=self._counters,
            connections=Connections(self._limits.places),
            held=Held(self._limits.places, self._limits.held_s),
        )
        self._sessions: set[asyncio.Task[None]] = set()
        self._started: Future[tuple[str, int]] = Future()
        self._serving: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"data-{host}", daemon=True)

    def start(self, timeout_s: float = 10.0) -> tuple[str, int]:
        """Start listening; return the address and port. Raises OSError if they cannot be bound."""
        self._thread.start()
        return self._started.result(timeout_s)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Close all connections and end the thread; partial inputs stay on disk for later streams."""
        if self._thread.ident is None:
            return
        if self._serving is not None and self._thread.is_alive():
            self._serving.get_loop().call_soon_threadsafe(self._serving.cancel)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise ServiceUnavailable(f"the data port did not stop within {timeout_s:g} s")

    def counters(self) -> dict[str, int]:
        """Return counts since the start, by event and by reason of refusal, and the `connections` open now."""
        return {**self._counters, "connections": len(self._sessions) + len(self._port.doors)}

    def refused(self) -> int:
        """Return how many streams were refused since the start, for any reason."""
        return sum(count for reason, count in self._counters.items() if reason not in _EVENTS)

    def _run(self) -> None:
        try:
            family = socket.AF_INET6 if ":" in self._bind[0] else socket.AF_INET
            with socket.create_server(self._bind, family=family, backlog=_BACKLOG) as listener:
                listener.setblocking(False)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_S)
                asyncio.run(self._serve(listener))
        except asyncio.CancelledError:
            LOG.info("data port of %s stopped", self._port.host)
        except BaseException as error:
            if self._started.done():
                LOG.exception("the data port of %s failed", self._port.host)
            else:
                self._started.set_exception(error)
        finally:
            self._port.workers.shutdown()

    async def _serve(self, listener: socket.socket) -> None:
        self._serving = asyncio.current_task()
        address, port = listener.getsockname()[:2]
        self._started.set_result((address, port))
        LOG.info("data port of %s listens on %s:%d", self._port.host, address, port)
        self._listen(listener)
        try:
            await asyncio.Event().wait()  # until stop() cancels it
        finally:
            asyncio.get_running_loop().remove_reader(listener)
            # Let new sessions take their first step: one that is cancelled before would not close its socket.
            await asyncio.sleep(0)
            for door in list(self._port.doors):
                door.close()
            for session in self._sessions:
                session.cancel()
            if self._sessions:
                await asyncio.wait(self._sessions)
            self._port.held.close()

    def _listen(self, listener: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept one new connection; others wait until the loop has served existing ones.

        Connections whose clients have already disconnected are closed on the way, up to a limit.  asyncio's server is
        not used, as connections must be counted before their TLS handshake, to limit the number of handshakes.
        """
        for _ in range(_LEFT_AT_ONCE):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                LOG.warning("data port of %s cannot accept: %s", self._port.host, error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(_ACCEPT_PAUSE_S, self._listen, listener)
                return
            if not has_left(sock):
                self._take(sock, peer)
                return
            self._counters["disconnected"] += 1
            sock.close()

    def _take(self, sock: socket.socket, peer: tuple[Any, ...]) -> None:
        sock.setblocking(False)
        if self._ssl_context is None:
            Door(self._port, sock, peer[0], partial(self._begin, sock, peer)).open()
            return
        connection, crowded = self._port.connections.enter(peer[0], sock.close)
        self._counters["busy"] += crowded
        self._begin(sock, peer, connection, b"")

    def _begin(self, sock: socket.socket, peer: tuple[Any, ...], connection: Connection, heard: bytes) -> None:
        talk = self._converse(sock, connection, source_of(*peer[:2]), heard)
        session = asyncio.get_running_loop().create_task(talk)
        connection.drop = session.cancel
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _converse(self, sock: socket.socket, connection: Connection, source: str, heard: bytes) -> None:
        try:
            await self._converse_on(sock, connection, source, heard)
        finally:
            self._port.connections.leave(connection)

    async def _converse_on(self, sock: socket.socket, connection: Connection, source: str, heard: bytes) -> None:
        with sock.dup() as spare:  # asyncio closes the original if the handshake fails
            try:
                stream = await self._open_stream(sock, heard)
            except OSError as error:
                self._port.log_refusal("connection", TransferRefused("no_tls", str(error)))
                self._port.held.hold(spare.dup(), connection.address)
                return
        try:
            await Session(self._port, stream, connection, source).run()
            await stream.close()
        finally:
            stream.abort()

    async def _open_stream(self, sock: socket.socket, heard: bytes) -> FrameStream:
        loop = asyncio.get_running_loop()
        stream = FrameStream(self._limits.stall_timeout_s, heard)
        tls_timeout_s = self._limits.hello_timeout_s if self._ssl_context else None
        opening = loop.create_task(
            loop.connect_accepted_socket(
                lambda: stream,
                sock,
                ssl=self._ssl_context,
                ssl_handshake_timeout=tls_timeout_s,
                ssl_shutdown_timeout=tls_timeout_s,
            )
        )
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            # asyncio does not close a TLS connection whose handshake is cancelled; shutdown makes the handshake fail.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            await asyncio.wait({opening})
            if opening.exception() is None:
                opening.result()[0].abort()
            raise
        return stream
