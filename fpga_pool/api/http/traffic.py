"""Buffers of HTTP requests and responses, which are received and sent in parts."""

import io
import json
import re
import socket
import ssl
from dataclasses import dataclass

from oslo_context.context import generate_request_id

from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable

_HEAD_END = b"\r\n\r\n"
_CONTENT_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*([^\r\n]*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
_CONTINUE = re.compile(rb"^expect[ \t]*:[ \t]*100-continue[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
PART_BYTES = 64 * 1024
#: Errors of a non-blocking socket that cannot be read or written now.
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: Error codes by status; the others have that of an invalid request.
_CODES = {413: "fpga_pool.too_large", 431: "fpga_pool.too_large", 503: ServiceUnavailable.code}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceptionLimits:
    """Limits of the resources that clients can occupy."""

    #: Timeouts of the head of a request, from its first byte or the opening of the connection; of its body, and of
    #: sending the response, each in addition to the time that their sizes take at the minimum rate.
    head_s: float = 10.0
    body_s: float = 10.0
    answer_s: float = 10.0
    least_bytes_per_s: float = 256 * 1024
    #: Timeout of a connection between two requests.
    idle_s: float = 30.0
    #: Time for a refused client to read the reason.
    linger_s: float = 2.0
    head_bytes: int = 32 * 1024
    body_bytes: int = 64 * 2**20
    #: Maximum size of all unanswered requests and unsent responses.
    held_bytes: int = 256 * 2**20
    connections: int = 512
    per_address: int = 384


def refusal(status: str, why: str) -> tuple[list[tuple[str, str]], bytes]:
    """Return the headers and the body of an error of the server itself, in the form of the API's errors."""
    request_id, (number, _, title) = generate_request_id(), status.partition(" ")
    code = _CODES.get(int(number), InvalidInput.code)
    error = {"code": code, "status": int(number), "title": title, "detail": why, "request_id": request_id}
    return [
        ("Content-Type", "application/json"),
        ("X-Openstack-Request-Id", request_id),
    ], json.dumps({"errors": [error]}).encode("ascii")


class Refused(Exception):
    """A request that the server refuses before it reaches the application."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(f"{status}: {why}")
        headers, body = refusal(status, why)
        headers += [("Content-Length", str(len(body))), ("Connection", "close")]
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.answer = "\r\n".join(lines).encode("ascii") + body


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
        """Order in which connections are ended, lowest first: those without a request yet, then the longest waiting."""
        return not self._is_first, self._began_s

    def refuse(self, now_s: float) -> None:
        """Refuse the request, and drop further data for a while: closing at once would reset the connection."""
        self.is_refused, self._is_first = True, True
        self.data.clear()
        self.deadline_s = now_s + self._limits.linger_s

    def receive(self, data: bytes, now_s: float) -> None:
        """Add received data."""
        if self.is_refused:
            return
        if not self.data and not self._is_first:
            self._began_s, self.deadline_s = now_s, now_s + self._limits.head_s
        self.data += data

    def is_complete(self, now_s: float) -> bool:
        """Return whether the request is complete. Raises Refused if it is not acceptable."""
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
        """Return whether the client waits for permission to send the body (100-continue), True only once."""
        wanted, self._continue = self._continue, False
        return wanted

    def take(self) -> tuple[bytes, bytes]:
        """Remove and return the request, and the received part of the next one."""
        request, ahead = bytes(self.data[: self._size]), bytes(self.data[self._size :])
        self.data.clear()
        return request, ahead

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
    """A complete request, with the interface by which cheroot reads a connection."""

    @property
    def bytes_read(self) -> int:
        """Number of bytes read so far."""
        return self.tell()

    def has_data(self) -> bool:
        """Return False: data of a later request is not part of this one."""
        return False


class Outgoing:
    """Responses as written by cheroot; bytes that the client does not receive at once are buffered here."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.rest = bytearray()
        self.bytes_written = 0

    def write(self, data: bytes) -> int:
        """Send what is possible without blocking, and buffer the rest. Raises OSError if the connection has ended."""
        self.rest += data
        self.bytes_written += len(data)
        self.send()
        return len(data)

    def send(self) -> None:
        """Send buffered bytes without blocking. Raises OSError if the connection has ended."""
        try:
            while self.rest:
                del self.rest[: self._socket.send(self.rest[:PART_BYTES])]
        except NOT_NOW:
            pass
        except OSError:
            self.rest.clear()
            raise
