"""The requester's side of one transfer: connect, report the flow, send the input, receive the result.

Blocking; for use by one thread.  Every wait is bounded and ends when the cancel event is set.  Errors are
TransferRefused (with the server's reason), TransferBroken (can be resumed with a new token), TransferCancelled,
JobFailed, InvalidInput if the source does not match its announcement, or OSError of the caller's files.
"""

import contextlib
import hashlib
import math
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, ClassVar, Self, TypeVar

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.model.values import counted
from fpga_pool.transfer import frames
from fpga_pool.transfer.lane_client import LaneConnection
from fpga_pool.transfer.schedule import Pacer
from fpga_pool.transfer.stream import KEEPALIVE_S, TICK_S, TransferBroken, TransferCancelled, Wire

__all__ = [
    "Connection", "JobFailed", "ResultInfo", "StagedAck", "TransferBroken", "TransferCancelled", "connect",
]  # fmt: skip

#: Each frame costs the server a thread switch, so long frames are faster.
_FRAME_BYTES = 512 * 1024

F = TypeVar("F", frames.Accept, frames.Staged, frames.Result)

#: Called with the number of bytes transferred so far.
Progress = Callable[[int], None]


class JobFailed(FpgaPoolError):
    """The job ended without a result; `failure` is the responder's stable code."""

    code: ClassVar[str] = "fpga_pool.job_failed"

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class StagedAck:
    """Confirmation that the responder has the whole input, checked and on disk."""

    received_bytes: int
    #: Bytes that the responder already had when this stream began.
    resumed_at_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """A received result in the file `path`; its digest was checked."""

    path: Path
    size_bytes: int
    sha256: str


def connect(
    address: tuple[str, int],
    timeout_s: float,
    *,
    ssl_context: ssl.SSLContext | None = None,
    silence_s: float = 30.0,
    cancel: threading.Event | None = None,
) -> "Connection":
    """Connect to a data port, without sending a frame.

    A server that neither reads nor sends anything for `silence_s` is considered dead; this must be well above the
    server's `Limits.keepalive_s`.  Raises InvalidInput if its certificate is not trusted, as a retry would not help.
    """
    sock = _connected(address, timeout_s, ssl_context)
    return Connection(sock, Wire(sock, silence_s=silence_s, cancel=cancel or threading.Event()))


def connect_lane(
    address: tuple[str, int], timeout_s: float, *, ssl_context: ssl.SSLContext | None = None
) -> LaneConnection:
    """Connect to a data port for small jobs; see `connect`."""
    return LaneConnection(_connected(address, timeout_s, ssl_context))


def _connected(address: tuple[str, int], timeout_s: float, ssl_context: ssl.SSLContext | None) -> socket.socket:
    try:
        sock = socket.create_connection(address, timeout_s)
    except OSError as error:
        raise TransferBroken(f"cannot connect to {address[0]} port {address[1]}: {error}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ssl_context is not None:
            sock = ssl_context.wrap_socket(sock, server_hostname=address[0])
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise InvalidInput(
            f"the certificate of {address[0]} port {address[1]} is not trusted: {error.verify_message}"
        ) from error
    except OSError as error:
        sock.close()
        raise TransferBroken(f"TLS failed with {address[0]} port {address[1]}: {error}") from error
    return sock


class Connection:
    """A connection to a data port, for one `send` and `receive_result`, or one `fetch`."""

    def __init__(self, sock: socket.socket, wire: Wire) -> None:
        #: Passed to the egress driver that paces it.
        self.socket = sock
        self.source_address, self.source_port = sock.getsockname()[:2]
        self.destination_address, self.destination_port = sock.getpeername()[:2]
        self._wire = wire

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. The server keeps the received part of the input for another stream."""
        self.socket.close()

    def send(
        self,
        token: str,
        source: BinaryIO | Path,
        input_bytes: int,
        pacer: Pacer | None = None,
        on_progress: Progress = lambda _: None,
        on_accept: Callable[[frames.Accept], object] = lambda _: None,
    ) -> StagedAck:
        """Send exactly `input_bytes` of `source` (an open file: from its position), except for what the server has."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(source.open("rb")) if isinstance(source, Path) else source
            self._wire.send(frames.Hello(token))
            accept = self._expect(frames.Accept)
            if accept.offset_bytes > input_bytes:
                raise InvalidInput(f"the server has {accept.offset_bytes} bytes of an input of {input_bytes}")
            on_accept(accept)
            digest = self._hash_first(file, accept.offset_bytes)
            on_progress(accept.offset_bytes)
            sent_bytes = accept.offset_bytes
            if pacer is not None:
                pacer.sent(sent_bytes)
            for data in self._pieces(file, input_bytes - sent_bytes, pacer):
                self._wire.send_bytes(memoryview(frames.encode_data_header(len(data))))
                self._wire.send_bytes(data, pacer)
                digest.update(data)
                sent_bytes += len(data)
                on_progress(sent_bytes)
            if file.read(1):
                raise InvalidInput(f"the source is larger than the announced {input_bytes} bytes")
        self._wire.send(frames.Trailer(digest.hexdigest()))
        staged = self._expect(frames.Staged)
        return StagedAck(staged.received_bytes, accept.offset_bytes, digest.hexdigest())

    def receive_result(self, sink: Path, timeout_s: float, on_progress: Progress = lambda _: None) -> ResultInfo:
        """Wait for the result and write it to `sink` atomically.

        Receipt is confirmed to the server only after that, so a result cannot be lost.  After a timeout or a broken
        connection the server keeps the result, and `fetch` can get it.
        """
        deadline_s = time.monotonic() + timeout_s
        result = self._expect(frames.Result, deadline_s)
        with _new_file(sink) as file:
            digest = hashlib.sha256()
            buffer = memoryview(bytearray(frames.MAX_DATA_BYTES))
            received_bytes = 0
            while received_bytes < result.size_bytes:
                header = self._next(deadline_s)
                if not isinstance(header, frames.Header) or header.length > result.size_bytes - received_bytes:
                    raise TransferBroken("the result does not match the announcement of the server")
                if not received_bytes:
                    on_progress(0)
                piece = buffer[: header.length]
                self._wire.receive_into(piece, deadline_s)
                digest.update(piece)
                file.write(piece)
                received_bytes += header.length
                on_progress(received_bytes)
            if digest.hexdigest() != result.sha256:
                raise TransferBroken("the result was corrupted in transit; fetch it again")
        self._wire.send(frames.ResultReceived())
        return ResultInfo(sink, result.size_bytes, result.sha256)

    def fetch(self, token: str, sink: Path, timeout_s: float, on_progress: Progress = lambda _: None) -> ResultInfo:
        """Fetch the result of a job whose input was sent over another connection."""
        self._wire.send(frames.Hello(token))
        return self.receive_result(sink, timeout_s, on_progress)

    def _hash_first(self, file: BinaryIO, length: int) -> "hashlib._Hash":
        """Read and hash the part that the server already has, as the digest covers the whole input."""
        digest = hashlib.sha256()
        while length > 0:
            block = file.read(min(2**20, length))
            if not block:
                raise InvalidInput(
                    f"the source ends {counted(length, 'byte')} before the offset that the server already has"
                )
            digest.update(block)
            length -= len(block)
            self._stay_alive()
        return digest

    def _pieces(self, file: BinaryIO, left_bytes: int, pacer: Pacer | None) -> Iterator[memoryview]:
        """Yield the input frame by frame, each when the pacer permits it; the next one overwrites the buffer."""
        buffer = memoryview(bytearray(min(_FRAME_BYTES, left_bytes)))
        while left_bytes > 0:
            most_bytes = min(_FRAME_BYTES, left_bytes)
            if pacer is not None:
                while not pacer.quota(most_bytes):
                    pacer.wait(TICK_S)
                    self._stay_alive()
                most_bytes = pacer.frame_bytes(most_bytes)
            length = file.readinto(buffer[:most_bytes])  # type: ignore[attr-defined]
            if not length:
                raise InvalidInput(f"the source ends {counted(left_bytes, 'byte')} before the announced size")
            left_bytes -= length
            yield buffer[:length]

    def _stay_alive(self) -> None:
        """Receive frames of the server while no data is sent, and send keepalives."""
        self._wire.listen()
        if time.monotonic() - self._wire.sent_s >= KEEPALIVE_S:
            self._wire.send(frames.KeepAlive())

    def _expect(self, kind: type[F], deadline_s: float = math.inf) -> F:
        frame = self._next(deadline_s)
        if isinstance(frame, frames.Failed):
            raise JobFailed(frame.code, frame.message)
        if not isinstance(frame, kind):
            raise TransferBroken(f"the server did not send {kind.type} as expected")
        return frame

    def _next(self, deadline_s: float) -> frames.Frame | frames.Header:
        while True:
            frame = self._wire.receive(deadline_s)
            if not isinstance(frame, frames.KeepAlive):
                return frame


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path` that replaces it if the block succeeds, and is deleted otherwise."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
