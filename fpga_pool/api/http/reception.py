"""Reception of requests and transmission of responses: one thread does this for all connections.

Worker threads never wait for a client: they get a request when it is complete, and the part of a response that the
client does not receive at once is sent later. So a slow or silent client occupies only a connection, and not for long:
each request and each response has a deadline, and if there are too many connections, the one that has been waiting
longest is ended. With TLS the handshake is part of the first request.
"""

import io
import selectors
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from cheroot import connections, errors, server
from cheroot.makefile import MakeFile
from cheroot.ssl import Adapter

from fpga_pool.api.http.traffic import (
    NOT_NOW,
    PART_BYTES,
    Incoming,
    Outgoing,
    ReceivedRequest,
    ReceptionLimits,
    Refused,
)


class ReceivedConnection(server.HTTPConnection):
    """A connection whose requests are received before a worker thread reads them, and whose responses are buffered."""

    incoming: Incoming
    #: Size of the request that was passed to the worker threads.
    request_bytes = 0
    #: Received part of the next request.
    ahead = b""
    #: The connection ends once the client has received the response.
    is_last = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.wfile = Outgoing(self.socket)

    @property
    def held_bytes(self) -> int:
        """Number of buffered bytes of its requests and responses."""
        return len(self.incoming.data) + self.request_bytes + len(self.wfile.rest)

    def close(self) -> None:
        """Close the connection, or let the reception close it after the rest of the response was sent."""
        reception = getattr(self.server, "reception", None)
        if reception is not None and self.wfile.rest and not self.is_last:
            self.is_last = True
            reception.put(self)
            return
        if reception is not None:
            reception.left(self)
        super().close()


class Tls(Adapter):
    """Adapter for TLS connections."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def bind(self, sock: socket.socket) -> socket.socket:
        """Return the listening socket unchanged; accepted connections are wrapped."""
        return sock

    def wrap(self, sock: socket.socket) -> tuple[ssl.SSLSocket, dict[str, str]]:
        """Return a TLS connection, whose handshake takes place at the first read."""
        try:
            return self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), self.get_environ()
        except OSError as error:  # the client has already disconnected
            sock.close()
            raise errors.FatalSSLAlert(*error.args) from error

    def get_environ(self) -> dict[str, str]:
        """Return the WSGI environment variables of TLS connections."""
        return {"HTTPS": "on"}

    def makefile(self, sock: socket.socket, mode: str = "r", bufsize: int = io.DEFAULT_BUFFER_SIZE) -> Any:
        """Return a file object for reading or writing a connection."""
        return MakeFile(sock, mode, bufsize)


class Reception(connections.ConnectionManager):
    """Receives the requests of all connections, and sends their responses, in the accepting thread."""

    # Attributes that are missing in cheroot's stubs.
    _selector: Any
    _stop_requested: bool
    _from_server_socket: Any

    def __init__(self, http_server: Any, limits: ReceptionLimits) -> None:
        super().__init__(http_server)
        self._limits = limits
        self._lock = threading.Lock()
        self._open: set[ReceivedConnection] = set()
        #: Connections that wait for a request or for a response to be sent, by descriptor; and those that worker
        #: threads have handed back.
        self._waiting: dict[int, ReceivedConnection] = {}
        self._back: list[ReceivedConnection] = []
        self._is_closed = False
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken.fileno(), selectors.EVENT_READ, data=None)

    @property
    def can_add_keepalive_connection(self) -> bool:
        """Whether a connection stays open after a response: always, as excess ones are ended when new ones arrive."""
        return True

    # Called by other threads

    def put(self, conn: ReceivedConnection) -> None:
        """Hand a connection back after a response."""
        with self._lock:
            closed = self._is_closed
            if not closed:
                self._back.append(conn)
        if not closed:
            with suppress(OSError):
                self._waker.send(b"\0")
            return
        with suppress(OSError):
            conn.socket.settimeout(self.server.timeout)
            conn.socket.sendall(conn.wfile.rest)
        self._end(conn)

    def left(self, conn: ReceivedConnection) -> None:
        """Remove a closed connection from the count."""
        with self._lock:
            self._open.discard(conn)

    def stop(self) -> None:
        """Let the receiving thread end; waiting connections stay open until `close`."""
        self._stop_requested = True
        with suppress(OSError):
            self._waker.send(b"\0")
        super().stop()

    def close(self) -> None:
        """Close all waiting connections and stop receiving."""
        with self._lock:
            self._is_closed = True
            back, self._back = self._back, []
        for conn in [*self._waiting.values(), *back]:
            self._end(conn)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    # The receiving thread

    def _run(self, expiration_interval: float) -> None:
        checked_s = time.monotonic()
        while not self._stop_requested:
            for descriptor, source in list(self._selector.select(timeout=expiration_interval)):
                if source is self.server:
                    self._accept()
                elif source is None:
                    self._take_back()
                elif descriptor in self._waiting:
                    conn = self._waiting[descriptor]
                    if conn.wfile.rest:
                        self._send(conn)
                    else:
                        self._receive(conn)
            now_s = time.monotonic()
            if now_s - checked_s >= expiration_interval:
                checked_s = now_s
                self._end_overdue(now_s)

    def _accept(self) -> None:
        conn = self._from_server_socket(self.server.socket)
        if conn is None:
            return
        with self._lock:
            of_address = Counter(one.remote_addr for one in self._open)
            self._open.add(conn)
        if of_address[conn.remote_addr] >= self._limits.per_address:
            self._end_one(conn.remote_addr)
        elif of_address.total() >= self._limits.connections:
            self._end_one(of_address.most_common(1)[0][0])
        self._await(conn, first=True)

    def _take_back(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        with self._lock:
            back, self._back = self._back, []
        for conn in back:
            conn.request_bytes = 0
            conn.rfile = ReceivedRequest()
            if conn.wfile.rest:
                self._send_later(conn)
            else:
                self._next(conn)

    def _next(self, conn: ReceivedConnection) -> None:
        """End the connection after its last response, or wait for the next request."""
        if conn.is_last:
            self._end(conn)
        else:
            self._await(conn, first=False)

    def _await(self, conn: ReceivedConnection, *, first: bool) -> None:
        conn.incoming = Incoming(self._limits, conn.ahead, time.monotonic(), first=first)
        conn.ahead = b""
        conn.socket.settimeout(0)
        self._wait_for(conn, selectors.EVENT_READ)
        if conn.incoming.data:
            self._proceed(conn)

    def _wait_for(self, conn: ReceivedConnection, event: int) -> None:
        self._waiting[conn.socket.fileno()] = conn
        self._selector.register(conn.socket.fileno(), event, data=conn)

    def _send_later(self, conn: ReceivedConnection) -> None:
        rest_s = len(conn.wfile.rest) / self._limits.least_bytes_per_s
        conn.incoming.deadline_s = time.monotonic() + self._limits.answer_s + rest_s
        self._wait_for(conn, selectors.EVENT_WRITE)
        self._end_largest()

    def _send(self, conn: ReceivedConnection) -> None:
        try:
            conn.wfile.send()
        except OSError:
            self._end(conn)
            return
        if not conn.wfile.rest:
            self._forget(conn)
            self._next(conn)

    def _receive(self, conn: ReceivedConnection) -> None:
        try:
            data = conn.socket.recv(PART_BYTES)
        except NOT_NOW:
            return
        except OSError as error:
            if getattr(error, "reason", "") == "HTTP_REQUEST":  # the TLS library has read plain HTTP
                self._refuse(conn, Refused("400 Bad Request", "this port speaks https only"), plain=True)
                return
            data = b""
        if not data:
            self._end(conn)
            return
        conn.incoming.receive(data, time.monotonic())
        self._proceed(conn)

    def _proceed(self, conn: ReceivedConnection) -> None:
        incoming = conn.incoming
        try:
            if not incoming.is_complete(time.monotonic()):
                if incoming.take_continue():
                    conn.socket.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._end_largest()
                return
        except Refused as refused:
            self._refuse(conn, refused)
            return
        except OSError:
            self._end(conn)
            return
        if len(incoming.data) > PART_BYTES and self._is_full():
            self._refuse(conn, Refused("503 Service Unavailable", "too many large requests are in progress"))
            return
        self._forget(conn)
        request, conn.ahead = incoming.take()
        conn.rfile, conn.request_bytes = ReceivedRequest(request), len(request)
        self.server.process_conn(conn)

    def _is_full(self) -> bool:
        with self._lock:
            return sum(conn.held_bytes for conn in self._open) > self._limits.held_bytes

    def _end_largest(self) -> None:
        """End the waiting connection with the most buffered bytes, if all connections together have too many."""
        if self._waiting and self._is_full():
            self._end(max(self._waiting.values(), key=lambda conn: conn.held_bytes))

    def _end_overdue(self, now_s: float) -> None:
        for conn in [conn for conn in self._waiting.values() if conn.incoming.deadline_s < now_s]:
            if conn.incoming.data:
                self._refuse(conn, Refused("408 Request Timeout", "the request did not arrive in time"))
            else:
                self._end(conn)

    def _end_one(self, address: str) -> None:
        """End the connection of an address that has been waiting longest."""
        waiting = [conn for conn in self._waiting.values() if conn.remote_addr == address]
        if waiting:
            self._end(min(waiting, key=lambda conn: conn.incoming.rank))

    def _refuse(self, conn: ReceivedConnection, refused: Refused, *, plain: bool = False) -> None:
        conn.incoming.refuse(time.monotonic())
        with suppress(OSError):
            send = socket.socket.send if plain else type(conn.socket).send
            send(conn.socket, refused.answer)
            conn.socket.shutdown(socket.SHUT_WR)

    def _end(self, conn: ReceivedConnection) -> None:
        self._forget(conn)
        conn.is_last = True
        with suppress(OSError):
            conn.close()

    def _forget(self, conn: ReceivedConnection) -> None:
        descriptor = conn.socket.fileno()
        if self._waiting.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
