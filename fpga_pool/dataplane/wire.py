"""Frames over a blocking TCP or TLS connection, each wait bounded and cancellable."""

import math
import select
import socket
import ssl
import threading
import time
from typing import ClassVar

from fpga_pool.dataplane import frames
from fpga_pool.dataplane.schedule import Pacer
from fpga_pool.model.exceptions import FpgaPoolError, TransferRefused

#: How soon a waiting thread notices that it was cancelled or has another rate.
TICK_S = 0.05
#: Bound of one write: OpenSSL must be given the same bytes again when a write did not go through.
WRITE_BYTES = 64 * 1024
#: How long after the last byte we say that we are there.
KEEPALIVE_S = 5.0
#: How long the last words of a server that hung up may take to be read.
_LAST_WORDS_S = 1.0

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TransferBroken(FpgaPoolError):
    """The network failed, or the other side fell silent; a new token continues where it ended."""

    code: ClassVar[str] = "fpga_pool.transfer_broken"


class TransferCancelled(FpgaPoolError):
    """The caller set the cancel event."""

    code: ClassVar[str] = "fpga_pool.transfer_cancelled"


class Wire:
    """The client's side of one connection; used by one thread.

    A Refuse of the server is raised as TransferRefused wherever it arrives.
    """

    def __init__(self, sock: socket.socket, *, silence_s: float, cancel: threading.Event) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._silence_s = silence_s
        self._cancel = cancel
        self._poll = select.poll()
        #: When the last byte left, on the monotonic clock.
        self.sent_s = time.monotonic()

    def send(self, frame: frames.Frame) -> None:
        """Send a control frame."""
        self.send_bytes(memoryview(frames.encode(frame)))

    def send_bytes(self, view: memoryview, pacer: Pacer | None = None) -> None:
        """Send everything, no sooner than the pacer allows.  Frames of the server are heard meanwhile.

        What began is completed even where another schedule holds it by now: a server does not wait for the rest long.
        """
        moved_s = time.monotonic()
        refused_bytes = 0
        while view:
            self.listen()
            most_bytes = min(len(view), WRITE_BYTES)
            size = refused_bytes or (most_bytes if pacer is None else pacer.quota(most_bytes))
            if size == 0 and pacer is not None:
                if time.monotonic() - moved_s < KEEPALIVE_S:
                    pacer.wait(TICK_S)
                    continue
                size = most_bytes
            try:
                sent = self._sock.send(view[:size])
            except WOULD_BLOCK:
                refused_bytes = size  # OpenSSL must be given the same again
                self._wait(select.POLLIN | select.POLLOUT, moved_s, "took nothing")
            except OSError as error:
                raise self._last_words(error) from error
            else:
                view, refused_bytes = view[sent:], 0
                moved_s = self.sent_s = time.monotonic()
                if pacer is not None:
                    pacer.sent(sent)

    def listen(self) -> None:
        """Take note of what the server says while it is not its turn: nothing, KeepAlive, or why it refuses."""
        self._check_cancelled()
        try:
            first = self._sock.recv(1)
        except WOULD_BLOCK:
            return
        except OSError as error:
            raise TransferBroken(f"the connection broke: {error}") from error
        if not first:
            raise TransferBroken("the server closed the connection")
        if not isinstance(self._read_frame(first), frames.KeepAlive):
            raise TransferBroken("the server spoke out of turn")

    def receive(self, deadline_s: float = math.inf) -> frames.Frame | frames.Header:
        """Wait for a control frame, or the header of a data frame, whose body `receive_into` reads."""
        return self._read_frame(b"", deadline_s)

    def receive_into(self, view: memoryview, deadline_s: float = math.inf) -> None:
        """Fill `view` with the body of a data frame, until `deadline_s` on the monotonic clock."""
        moved_s = time.monotonic()
        while view:
            self._check_cancelled()
            if time.monotonic() > deadline_s:
                raise TransferBroken("not complete when the time was over")
            try:
                received = self._sock.recv_into(view)
            except WOULD_BLOCK as blocked:
                wants_write = isinstance(blocked, ssl.SSLWantWriteError)
                self._wait(select.POLLOUT if wants_write else select.POLLIN, moved_s, "said nothing")
            except OSError as error:
                raise TransferBroken(f"the connection broke: {error}") from error
            else:
                if received == 0:
                    raise TransferBroken("the server closed the connection")
                view = view[received:]
                moved_s = time.monotonic()

    def _read_frame(self, begin: bytes, deadline_s: float = math.inf) -> frames.Frame | frames.Header:
        try:
            rest = self._receive_exactly(frames.HEADER_BYTES - len(begin), deadline_s)
            header = frames.decode_header(begin + rest)
            if header.is_data:
                return header
            frame = frames.decode(self._receive_exactly(header.length, deadline_s))
        except frames.BadFrame as error:
            raise TransferBroken(f"the server does not speak this protocol: {error}") from error
        if isinstance(frame, frames.Refuse):
            raise TransferRefused(frame.reason, frame.message)
        return frame

    def _receive_exactly(self, length: int, deadline_s: float) -> bytes:
        body = bytearray(length)
        self.receive_into(memoryview(body), deadline_s)
        return bytes(body)

    def _last_words(self, error: OSError) -> FpgaPoolError:
        """Read why the server hung up while we sent, if it said so."""
        self._silence_s = min(self._silence_s, _LAST_WORDS_S)
        try:
            while isinstance(self.receive(), frames.KeepAlive):
                pass
        except TransferRefused as refused:
            return refused
        except TransferBroken:
            pass
        return TransferBroken(f"the connection broke: {error}")

    def _wait(self, events: int, moved_s: float, what: str) -> None:
        self._check_cancelled()
        if time.monotonic() - moved_s > self._silence_s:
            raise TransferBroken(f"the server {what} for {self._silence_s:g} s")
        self._poll.register(self._sock, events)
        self._poll.poll(1000 * TICK_S)

    def _check_cancelled(self) -> None:
        if self._cancel.is_set():
            raise TransferCancelled("cancelled by the caller")
