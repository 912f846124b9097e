"""The requester's side of a lane: many small jobs on one connection, driven by one thread in both directions."""

import os
import select
import socket
import ssl
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.stream import KEEPALIVE_S, WOULD_BLOCK, WRITE_BYTES, TransferBroken

_READ_BYTES = 256 * 1024

#: An answer to an order, and the bytes of the result.
Answer = tuple[frames.Result | frames.Failed | frames.Refuse | frames.Held, bytes]


class LaneConnection:
    """A connection on which `pump` sends the frames queued by `put`, and receives answers."""

    def __init__(self, sock: socket.socket, silence_s: float = 30.0) -> None:
        sock.setblocking(False)
        self.source_address, self.source_port = sock.getsockname()[:2]
        self._sock = sock
        self._silence_s = silence_s
        self._out = bytearray()
        self._in = bytearray()
        self._broken: TransferBroken | None = None
        self._sent_s = self._moved_s = time.monotonic()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._poll.register(sock, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sock.close()
        os.close(self._wakeup)

    def wake(self) -> None:
        """Make `pump` return soon; any thread may call this while the lane is open."""
        os.eventfd_write(self._wakeup, 1)

    def put(self, frame: frames.Frame, data: bytes = b"") -> None:
        """Queue a frame, followed by a data frame if there is data."""
        self._out += frames.encode(frame)
        if data:
            self._out += frames.encode_data_header(len(data))
            self._out += data

    def pump(self, timeout_s: float) -> list[Answer]:
        """Send and receive, waiting up to `timeout_s` for the socket; return the answers that are complete.

        Raises TransferRefused if the server ends the lane, TransferBroken if the network fails or the server is silent.
        """
        now_s = time.monotonic()
        if now_s - self._sent_s >= KEEPALIVE_S and not self._out:
            self.put(frames.KeepAlive())
        self._send()
        self._poll.modify(self._sock, select.POLLIN | (select.POLLOUT if self._out else 0))
        for descriptor, _ in self._poll.poll(1000 * timeout_s):
            if descriptor == self._wakeup:
                os.eventfd_read(self._wakeup)
        self._receive()
        try:
            answers = list(self._answers())
        except frames.BadFrame as error:
            raise TransferBroken(f"the server does not speak this protocol: {error}") from error
        if time.monotonic() - self._moved_s > self._silence_s:
            self._broken = TransferBroken(f"the server sent nothing for {self._silence_s:g} s")
        # Answers that arrived before the connection broke are returned first.
        if self._broken is not None and not answers:
            raise self._broken
        return answers

    def _send(self) -> None:
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self._sock.send(view[:WRITE_BYTES])
                del self._out[:sent]
                self._sent_s = time.monotonic()
        except WOULD_BLOCK:
            pass
        except OSError as error:
            self._broken = TransferBroken(f"the connection failed: {error}")

    def _receive(self) -> None:
        try:
            while True:
                piece = self._sock.recv(_READ_BYTES)
                if not piece:
                    self._broken = TransferBroken("the server closed the connection")
                    return
                self._in += piece
                self._moved_s = time.monotonic()
                if len(piece) < _READ_BYTES and not isinstance(self._sock, ssl.SSLSocket):
                    return
        except WOULD_BLOCK:
            pass
        except OSError as error:
            self._broken = TransferBroken(f"the connection failed: {error}")

    def _answers(self) -> Iterator[Answer]:
        """Yield complete answers; the rest stays in the buffer."""
        begin = 0
        try:
            while (piece := self._frame(begin)) is not None:
                header, body_at = piece
                frame = frames.decode(bytes(self._in[body_at : body_at + header.length]))
                end, data = body_at + header.length, b""
                if isinstance(frame, frames.Result) and frame.size_bytes:
                    following = self._frame(end)
                    if following is None:
                        return
                    header, body_at = following
                    if not header.is_data or header.length != frame.size_bytes:
                        raise frames.BadFrame("the result does not match its announcement")
                    end = body_at + header.length
                    data = bytes(self._in[body_at:end])
                begin = end
                if isinstance(frame, frames.Refuse) and frame.number == 0:
                    raise TransferRefused(frame.reason, frame.message)
                if isinstance(frame, frames.Result | frames.Failed | frames.Refuse | frames.Held):
                    yield frame, data
                elif not isinstance(frame, frames.KeepAlive):
                    raise frames.BadFrame(f"{frame.type}: not allowed on a lane")
        finally:
            del self._in[:begin]

    def _frame(self, begin: int) -> tuple[frames.Header, int] | None:
        """Return the header and the offset of the body of the frame at `begin`, if it is complete, else None."""
        body_at = begin + frames.HEADER_BYTES
        if len(self._in) < body_at:
            return None
        header = frames.decode_header(bytes(self._in[begin:body_at]))
        return (header, body_at) if len(self._in) >= body_at + header.length else None
