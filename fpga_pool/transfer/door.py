"""A connection until its first frame is here; a token that opens nothing is refused at the door.

Nothing waits for a stranger there: it costs a descriptor, a timer and the bytes that it has sent.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.connections import Connection
from fpga_pool.transfer.port import Port

_PIECE_BYTES = 4096


class Door:
    """One connection without TLS, used on the event loop of its port.  `admit` gets all that it has sent so far."""

    def __init__(
        self, port: Port, sock: socket.socket, connection: Connection, admit: Callable[[bytes], object]
    ) -> None:
        self._port, self._sock, self._connection, self._admit = port, sock, connection, admit
        self._said = bytearray()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(port.limits.hello_timeout_s, self._refuse_silence)
        self._loop.add_reader(sock, self._hear)
        connection.drop = self.close
        port.doors.add(self)

    def close(self) -> None:
        """Drop the connection."""
        self._end()
        self._port.connections.leave(self._connection)
        self._sock.close()

    def _hear(self) -> None:
        try:
            piece = self._sock.recv(_PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece or self._is_left():
            self._port.counters["disconnected"] += 1
            self.close()
            return
        self._said += piece
        try:
            first = _first_frame(self._said)
        except frames.BadFrame as error:
            self._refuse(TransferRefused("bad_frame", str(error)))
            return
        if first is None:
            return
        try:
            self._connection.verified = first.token, self._port.verify(first.token, self._connection)
        except TransferRefused as refused:
            # A lane refuses an order by itself, and others on it may be good; not where strangers are many.
            if isinstance(first, frames.Hello) or not self._port.told.take(self._loop.time()):
                self._refuse(refused)
                return
        self._end()
        self._admit(bytes(self._said))

    def _is_left(self) -> bool:
        """Return whether the client has hung up: then nothing that it said is verified."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _refuse_silence(self) -> None:
        self._refuse(no_hello(self._port.limits.hello_timeout_s))

    def _refuse(self, refused: TransferRefused) -> None:
        self._end()
        self._port.connections.leave(self._connection)
        self._port.log_refusal("connection", refused)
        if self._port.told.take(self._loop.time()):
            with contextlib.suppress(OSError):
                self._sock.send(frames.encode(frames.Refuse(refused.reason, str(refused))))
        self._port.held.hold(self._sock, self._connection.address)

    def _end(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._sock)
        self._port.doors.discard(self)


def no_hello(timeout_s: float) -> TransferRefused:
    """Return why a client is refused that has not sent its first frame in time."""
    return TransferRefused("no_hello", f"no first frame within {timeout_s:g} s")


def check_first(frame: frames.Frame | frames.Header) -> frames.Hello | frames.Order | frames.Fetch:
    """Return a frame that may be the first; BadFrame if it may not."""
    if not isinstance(frame, frames.Hello | frames.Order | frames.Fetch):
        raise frames.BadFrame("the first frame must be hello")
    return frame


def _first_frame(said: bytearray) -> frames.Hello | frames.Order | frames.Fetch | None:
    """Return the first frame, if it is complete."""
    if len(said) < frames.HEADER_BYTES:
        return None
    header = frames.decode_header(bytes(said[: frames.HEADER_BYTES]))
    end = frames.HEADER_BYTES + header.length
    if header.is_data:
        return check_first(header)
    return check_first(frames.decode(bytes(said[frames.HEADER_BYTES : end]))) if len(said) >= end else None
