"""Frames over a connection, with bounded waits: asyncio on the server, blocking sockets in the client."""

import asyncio
import contextlib
import math
import select
import socket
import ssl
import threading
import time
from typing import ClassVar

from fpga_pool.model.exceptions import FpgaPoolError, TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.schedule import Pacer

#: Interval in which a waiting thread checks for cancellation and a new rate.
TICK_S = 0.05
#: Maximum size of one write, as a blocked write must be repeated with the same bytes under OpenSSL.
WRITE_BYTES = 64 * 1024
#: Time after the last sent byte at which a keepalive is sent.
KEEPALIVE_S = 5.0
#: Timeout for reading the last frame of a server that closed the connection.
_LAST_WORDS_S = 1.0

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TransferBroken(FpgaPoolError):
    """The network failed, or the peer stopped responding. The transfer can be resumed with a new token."""

    code: ClassVar[str] = "fpga_pool.transfer_broken"


class TransferCancelled(FpgaPoolError):
    """The caller set the cancel event."""

    code: ClassVar[str] = "fpga_pool.transfer_cancelled"


class Wire:
    """The client's side of one connection; used by one thread.

    Any method may raise TransferRefused when it receives a Refuse of the server.
    """

    def __init__(self, sock: socket.socket, *, silence_s: float, cancel: threading.Event) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._silence_s = silence_s
        self._cancel = cancel
        self._poll = select.poll()
        #: When the last byte was sent, on the monotonic clock.
        self.sent_s = time.monotonic()

    def send(self, frame: frames.Frame) -> None:
        """Send a control frame."""
        self.send_bytes(memoryview(frames.encode(frame)))

    def send_bytes(self, view: memoryview, pacer: Pacer | None = None) -> None:
        """Send all bytes, no sooner than the pacer permits, and process frames of the server meanwhile.

        If a new schedule holds the bytes, sending continues after KEEPALIVE_S, as the server does not wait long.
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
                refused_bytes = size  # OpenSSL requires a retry with the same bytes
                self._wait(select.POLLIN | select.POLLOUT, moved_s, "read nothing")
            except OSError as error:
                raise self._last_words(error) from error
            else:
                view, refused_bytes = view[sent:], 0
                moved_s = self.sent_s = time.monotonic()
                if pacer is not None:
                    pacer.sent(sent)

    def listen(self) -> None:
        """Process a frame that the server may have sent out of turn: KeepAlive, or Refuse, which is raised."""
        self._check_cancelled()
        try:
            first = self._sock.recv(1)
        except WOULD_BLOCK:
            return
        except OSError as error:
            raise TransferBroken(f"the connection failed: {error}") from error
        if not first:
            raise TransferBroken("the server closed the connection")
        if not isinstance(self._read_frame(first), frames.KeepAlive):
            raise TransferBroken("the server sent an unexpected frame")

    def receive(self, deadline_s: float = math.inf) -> frames.Frame | frames.Header:
        """Receive a control frame, or the header of a data frame, whose body `receive_into` reads."""
        return self._read_frame(b"", deadline_s)

    def receive_into(self, view: memoryview, deadline_s: float = math.inf) -> None:
        """Fill `view` with the body of a data frame, until `deadline_s` on the monotonic clock."""
        moved_s = time.monotonic()
        while view:
            self._check_cancelled()
            if time.monotonic() > deadline_s:
                raise TransferBroken("not complete before the timeout")
            try:
                received = self._sock.recv_into(view)
            except WOULD_BLOCK as blocked:
                wants_write = isinstance(blocked, ssl.SSLWantWriteError)
                self._wait(select.POLLOUT if wants_write else select.POLLIN, moved_s, "sent nothing")
            except OSError as error:
                raise TransferBroken(f"the connection failed: {error}") from error
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
        """Return the server's refusal if it sent one before it closed the connection, else TransferBroken."""
        self._silence_s = min(self._silence_s, _LAST_WORDS_S)
        try:
            while isinstance(self.receive(), frames.KeepAlive):
                pass
        except TransferRefused as refused:
            return refused
        except TransferBroken:
            pass
        return TransferBroken(f"the connection failed: {error}")

    def _wait(self, events: int, moved_s: float, what: str) -> None:
        self._check_cancelled()
        if time.monotonic() - moved_s > self._silence_s:
            raise TransferBroken(f"the server {what} for {self._silence_s:g} s")
        self._poll.register(self._sock, events)
        self._poll.poll(1000 * TICK_S)

    def _check_cancelled(self) -> None:
        if self._cancel.is_set():
            raise TransferCancelled("cancelled by the caller")


#: Two data frames: while one is hashed and written, the next one arrives.
BUFFER_BYTES = 2 * frames.MAX_DATA_BYTES
#: Initial size of the buffer, until a peer sends larger frames.
_FIRST_BUFFER_BYTES = 16 * 1024
#: The buffer grows to this multiple of the size that is needed.
_GROWTH = 4


class FrameStream(asyncio.BufferedProtocol):
    """The server's side of one connection. Received data is returned as views of its buffer, without a copy.

    Waits raise TimeoutError if no byte was transferred for `stall_timeout_s`, and EOFError or OSError if the peer is
    gone.  `heard` contains bytes that were received before.
    """

    def __init__(self, stall_timeout_s: float, heard: bytes = b"") -> None:
        self._stall_timeout_s = stall_timeout_s
        self._buffer = memoryview(bytearray(heard) + bytearray(_FIRST_BUFFER_BYTES))
        #: Range of the buffer with bytes that were received but not returned yet.
        self._begin, self._end = 0, len(heard)
        self._paused = False
        self._transport: asyncio.Transport
        self._gone: Exception | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._wanted_bytes = 1
        self._writable: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        transport.set_write_buffer_limits(high=frames.MAX_DATA_BYTES)
        sock = transport.get_extra_info("socket")
        # Without this timeout the kernel would retransmit to a vanished peer for a quarter of an hour.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * self._stall_timeout_s))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._end == len(self._buffer):
            self._transport.pause_reading()
            self._paused = True
        if self._end - self._begin >= self._wanted_bytes:
            self._wake()

    def eof_received(self) -> bool:
        self._gone = self._gone or EOFError()
        self._wake()
        return True  # the transport stays open until `close` is called

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = exc or self._gone or EOFError()
        self._wake()
        self.resume_writing()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Reading

    async def read(self) -> frames.Frame | frames.Header:
        """Read a control frame, or the header of a data frame, whose body `read_data` returns in pieces."""
        await self._need(frames.HEADER_BYTES)
        header = frames.decode_header(self._take(frames.HEADER_BYTES))
        if header.is_data:
            return header
        await self._need(header.length)
        return frames.decode(bytes(self._take(header.length)))

    async def read_data(self, limit: int) -> memoryview:
        """Return up to `limit` bytes of a data frame's body: all of them, unless the buffer or the stream ends before.

        The result is a view of the buffer, valid until the next call.
        """
        try:
            await self._need(min(limit, BUFFER_BYTES))
        except (EOFError, OSError, TimeoutError):
            if self._begin == self._end:
                raise
        return self._take(min(limit, self._end - self._begin))

    async def skip(self, size: int) -> None:
        """Read and discard `size` bytes of a data frame's body."""
        while size > 0:
            await self._need(1)
            size -= len(self._take(min(size, self._end - self._begin)))

    def holds_frame(self) -> bool:
        """Return whether the next `read` would return, or raise, without waiting."""
        here_bytes = self._end - self._begin
        if here_bytes < frames.HEADER_BYTES:
            return False
        header = frames.decode_header(self._buffer[self._begin : self._begin + frames.HEADER_BYTES])
        return header.is_data or here_bytes >= frames.HEADER_BYTES + header.length

    async def wait_closed_by_peer(self) -> None:
        """Wait until the peer closes the connection. Raises BadFrame if it sends something out of turn."""
        try:
            while self._begin == self._end:
                await self._wait_arrival(1)
        except EOFError:
            return
        raise frames.BadFrame("unexpected frame: it is the server's turn to send")

    def _take(self, size: int) -> memoryview:
        piece = self._buffer[self._begin : self._begin + size]
        self._begin += size
        return piece

    async def _need(self, size: int) -> None:
        """Wait until `size` bytes are in the buffer."""
        if self._begin == self._end and not self._paused:
            self._begin = self._end = 0
        while (here_bytes := self._end - self._begin) < size:
            self._make_room(size)
            try:
                async with asyncio.timeout(self._stall_timeout_s):
                    await self._wait_arrival(size)
            except TimeoutError:
                if self._end - self._begin == here_bytes:
                    raise

    def _make_room(self, size: int) -> None:
        """Make room for `size` bytes: grow the buffer or move unread bytes to its front. Invalidates earlier views."""
        left = self._end - self._begin
        if size > len(self._buffer):
            grown = memoryview(bytearray(min(BUFFER_BYTES, _GROWTH * size)))
            grown[:left] = self._buffer[self._begin : self._end]
            self._buffer = grown
        elif self._paused or self._begin + size > len(self._buffer):
            self._buffer[:left] = self._buffer[self._begin : self._end]
        else:
            return
        self._begin, self._end = 0, left
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    async def _wait_arrival(self, size: int) -> None:
        """Wait until `size` bytes have arrived. Raises EOFError or OSError if the peer is gone."""
        if self._gone is not None:
            raise self._gone
        self._wanted_bytes = size
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # Writing

    async def send(self, frame: frames.Frame) -> None:
        """Send a control frame."""
        await self.send_bytes(frames.encode(frame))

    async def send_data(self, piece: bytes) -> None:
        """Send a data frame."""
        self._transport.write(frames.encode_data_header(len(piece)))
        await self.send_bytes(piece)

    async def send_bytes(self, encoded: bytes) -> None:
        """Send encoded frames; wait while the write buffer is full because the peer reads too slowly."""
        if self._gone is not None and not isinstance(self._gone, EOFError):
            raise self._gone
        self._transport.write(encoded)
        if self._writable is not None:
            async with asyncio.timeout(self._stall_timeout_s):
                await asyncio.shield(self._writable)

    async def linger(self, timeout_s: float) -> None:
        """Let the peer read the last frame: closing while its data still arrives would reset the connection."""
        with contextlib.suppress(OSError, TimeoutError, EOFError):
            async with asyncio.timeout(timeout_s):
                if self._transport.can_write_eof():
                    self._transport.write_eof()
                while True:
                    self._begin = self._end
                    await self._need(1)

    async def close(self) -> None:
        """Close the connection; data that the peer does not read within the stall timeout is dropped."""
        self._transport.close()
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()

    def detach(self) -> socket.socket | None:
        """Abandon the stream and return its socket, which the caller must close; None if data is still unsent."""
        if self._transport.get_write_buffer_size():
            return None
        sock: socket.socket = self._transport.get_extra_info("socket").dup()
        self.abort()
        return sock

    def abort(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()
