"""Requests as they come in, before a thread is given to them: one thread receives those of all connections.

A thread that answers never waits for a client: it gets a request when all of it is here. So a client that is slow, or
silent, holds a connection and nothing else, and not for long: each request has a deadline, and where connections are
too many, the one that has been waited for longest ends.  With TLS the handshake is part of the first request.
"""

import io
import re
import selectors
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cheroot import connections, errors, server
from cheroot.makefile import MakeFile
from cheroot.ssl import Adapter

_HEAD_END = b"\r\n\r\n"
_CONTENT_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*([^\r\n]*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
_CONTINUE = re.compile(rb"^expect[ \t]*:[ \t]*100-continue[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_READ_BYTES = 64 * 1024
#: There is nothing to read now.
_NOTHING_NOW = (BlockingIOError, ssl.SSLWantReadError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceptionLimits:
    """What clients can hold."""

    #: For the head of a request, from its first byte or the opening of the connection; and of its body, besides the
    #: time that its size takes at the least rate.
    head_s: float = 10.0
    body_s: float = 10.0
    least_bytes_per_s: float = 256 * 1024
    #: A connection between two requests.
    idle_s: float = 30.0
    #: A client that was refused, to read why.
    linger_s: float = 2.0
    head_bytes: int = 32 * 1024
    body_bytes: int = 64 * 2**20
    #: Of all requests that are not complete.
    received_bytes: int = 256 * 2**20
    connections: int = 512
    per_address: int = 384


class Refused(Exception):
    """A request that is answered without a look at what it wants."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(f"{status}: {why}")
        headers = f"Content-Type: text/plain\r\nContent-Length: {len(why)}\r\nConnection: close\r\n"
        self.answer = f"HTTP/1.1 {status}\r\n{headers}\r\n{why}".encode("ascii")


class Incoming:
    """The bytes of one request, until it is complete."""

    def __init__(self, limits: ReceptionLimits, begun: bytes, now_s: float, *, first: bool) -> None:
        self._limits = limits
        self.data = bytearray(begun)
        self._is_first = first
        self._size: int | None = None
        self._began_s = now_s
        self.deadline_s = now_s + (limits.head_s if first or begun else limits.idle_s)
        self._continue = False
        self.is_refused = False

    @property
    def rank(self) -> tuple[bool, float]:
        """The lowest is ended first: connections without any request yet, then those that wait for longest."""
        return not self._is_first, self._began_s

    def refuse(self, now_s: float) -> None:
        """Let the client read why: what it sends meanwhile is dropped, for closing would reset the connection."""
        self.is_refused, self._is_first = True, True
        self.data.clear()
        self.deadline_s = now_s + self._limits.linger_s

    def receive(self, data: bytes, now_s: float) -> None:
        """Add what has arrived."""
        if self.is_refused:
            return
        if not self.data and not self._is_first:
            self._began_s, self.deadline_s = now_s, now_s + self._limits.head_s
        self.data += data

    def is_complete(self, now_s: float) -> bool:
        """Return whether all of the request is here; Refused if it cannot be answered."""
        if self.is_refused:
            return False
        if self._size is None:
            end = self.data.find(_HEAD_END)
            if end < 0:
                if len(self.data) > self._limits.head_bytes:
                    raise Refused("431 Request Header Fields Too Large", "the head of the request is too long")
                return False
            head_bytes = end + len(_HEAD_END)
            body_bytes = self._body_bytes(bytes(self.data[:head_bytes]))
            self._size = head_bytes + body_bytes
            self.deadline_s = now_s + self._limits.body_s + body_bytes / self._limits.least_bytes_per_s
        return len(self.data) >= self._size

    def take_continue(self) -> bool:
        """Return, once, whether the client waits for permission to send the body."""
        wanted, self._continue = self._continue, False
        return wanted

    def take(self) -> tuple[bytes, bytes]:
        """Return the request, and what has come of the next one."""
        return bytes(self.data[: self._size]), bytes(self.data[self._size :])

    def _body_bytes(self, head: bytes) -> int:
        lengths = _CONTENT_LENGTH.findall(head)
        if len(lengths) > 1:
            raise Refused("400 Bad Request", "more than one Content-Length")
        if _CHUNKED.search(head):
            raise Refused("411 Length Required", "a body is accepted with a Content-Length only")
        if not lengths:
            return 0
        if not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
            raise Refused("400 Bad Request", "Content-Length: expected a number of bytes")
        if int(lengths[0]) > self._limits.body_bytes:
            raise Refused("413 Content Too Large", f"a body has at most {self._limits.body_bytes} bytes")
        self._continue = bool(_CONTINUE.search(head))
        return int(lengths[0])


class ReceivedRequest(io.BytesIO):
    """A complete request, as cheroot reads a connection."""

    @property
    def bytes_read(self) -> int:
        """How much was read of it."""
        return self.tell()

    def has_data(self) -> bool:
        """Return whether the client has sent more than what was read."""
        return False


class ReceivedConnection(server.HTTPConnection):
    """A connection the requests of which are received before a thread reads them."""

    incoming: Incoming
    #: What has come of the next request.
    ahead = b""

    def close(self) -> None:
        """Close; the reception counts one less."""
        reception = getattr(self.server, "reception", None)
        if reception is not None:
            reception.left(self)
        super().close()


class Tls(Adapter):
    """Connections that speak TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def bind(self, sock: socket.socket) -> socket.socket:
        """Return the socket that listens: what it accepts is wrapped."""
        return sock

    def wrap(self, sock: socket.socket) -> tuple[ssl.SSLSocket, dict[str, str]]:
        """Return a connection, which makes its handshake when it is read first."""
        try:
            return self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), self.get_environ()
        except OSError as error:  # it has gone already
            sock.close()
            raise errors.FatalSSLAlert(*error.args) from error

    def get_environ(self) -> dict[str, str]:
        """Return what applications are told."""
        return {"HTTPS": "on"}

    def makefile(self, sock: socket.socket, mode: str = "r", bufsize: int = io.DEFAULT_BUFFER_SIZE) -> Any:
        """Return what reads or writes a connection."""
        return MakeFile(sock, mode, bufsize)


class Reception(connections.ConnectionManager):
    """Receives the requests of all connections of a server, in the thread that accepts them."""

    # What cheroot's stubs leave out.
    _selector: Any
    _stop_requested: bool
    _from_server_socket: Any

    def __init__(self, http_server: Any, limits: ReceptionLimits) -> None:
        super().__init__(http_server)
        self._limits = limits
        self._lock = threading.Lock()
        self._open: set[ReceivedConnection] = set()
        #: Those of which something is awaited, by descriptor; and what other threads hand back.
        self._waiting: dict[int, ReceivedConnection] = {}
        self._back: list[ReceivedConnection] = []
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken.fileno(), selectors.EVENT_READ, data=None)

    @property
    def can_add_keepalive_connection(self) -> bool:
        """Whether a connection stays open after an answer: those that are too many are ended as new ones come."""
        return True

    # What other threads call

    def put(self, conn: ReceivedConnection) -> None:
        """Take a connection back after an answer."""
        with self._lock:
            self._back.append(conn)
        with suppress(OSError):
            self._waker.send(b"\0")

    def left(self, conn: ReceivedConnection) -> None:
        """Count a connection no more."""
        with self._lock:
            self._open.discard(conn)

    def close(self) -> None:
        """Close all connections that are waited for."""
        for conn in list(self._waiting.values()):
            self._end(conn)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    # The thread that receives

    def _run(self, expiration_interval: float) -> None:
        looked_s = time.monotonic()
        while not self._stop_requested:
            for descriptor, source in list(self._selector.select(timeout=expiration_interval)):
                if source is self.server:
                    self._accept()
                elif source is None:
                    self._take_back()
                elif descriptor in self._waiting:
                    self._receive(self._waiting[descriptor])
            now_s = time.monotonic()
            if now_s - looked_s >= expiration_interval:
                looked_s = now_s
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
            self._await(conn, first=False)

    def _await(self, conn: ReceivedConnection, *, first: bool) -> None:
        conn.incoming = Incoming(self._limits, conn.ahead, time.monotonic(), first=first)
        conn.ahead = b""
        conn.socket.settimeout(0)
        self._waiting[conn.socket.fileno()] = conn
        self._selector.register(conn.socket.fileno(), selectors.EVENT_READ, data=conn)
        if conn.incoming.data:
            self._proceed(conn)

    def _receive(self, conn: ReceivedConnection) -> None:
        try:
            data = conn.socket.recv(_READ_BYTES)
        except _NOTHING_NOW:
            return
        except OSError as error:
            if getattr(error, "reason", "") == "HTTP_REQUEST":  # of TLS's errors: it has read no TLS
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
                if sum(len(one.incoming.data) for one in self._waiting.values()) > self._limits.received_bytes:
                    self._end(max(self._waiting.values(), key=lambda one: len(one.incoming.data)))
                return
        except Refused as refused:
            self._refuse(conn, refused)
            return
        except OSError:
            self._end(conn)
            return
        self._forget(conn)
        request, conn.ahead = incoming.take()
        conn.rfile = ReceivedRequest(request)
        conn.socket.settimeout(self.server.timeout)
        self.server.process_conn(conn)

    def _end_overdue(self, now_s: float) -> None:
        for conn in [conn for conn in self._waiting.values() if conn.incoming.deadline_s < now_s]:
            if conn.incoming.data:
                self._refuse(conn, Refused("408 Request Timeout", "the request did not arrive in time"))
            else:
                self._end(conn)

    def _end_one(self, address: str) -> None:
        """End the connection of an address that is waited for longest."""
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
        with suppress(OSError):
            conn.close()

    def _forget(self, conn: ReceivedConnection) -> None:
        descriptor = conn.socket.fileno()
        if self._waiting.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
