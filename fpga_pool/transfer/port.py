"""State shared by the sessions of one data port: limits, the token bucket of its read rate, and spool files of inputs.

Methods of `Spool` block; sessions call them in a worker thread.
"""

import asyncio
import contextlib
import errno
import hashlib
import logging
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.exceptions import InvalidInput, TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.connections import Connection, Connections, Held, Places
from fpga_pool.transfer.handler import TokenLedger, TransferHandler
from fpga_pool.transfer.tokens import TransferGrant, Verifier

LOG = logging.getLogger(__name__)

#: Errors of a disk that has no room at the moment.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

#: What may pass at once after a pause: this long at full rate.  A port that did not get the processor for a while must
#: be able to catch up, or its links stand still for good.
_BURST_S = 0.25

#: What earlier streams left is hashed in such steps, and in so many of the worker threads at a time.
_HASH_STEP_BYTES, _HASHING = 4 * 2**20, 2


class TokenBucket:
    """Meter of one rate, shared by any number of streams; used by one thread."""

    def __init__(self, rate_bps: float, now_s: float) -> None:
        if not rate_bps > 0:
            raise InvalidInput(f"rate_bps: expected more than 0, got {rate_bps}")
        self._rate_bps = rate_bps
        #: When everything taken so far has been paid for.
        self._paid_s = now_s

    def take(self, taken_bytes: int, now_s: float) -> float:
        """Count bytes that were read; return how many seconds to wait before reading on.

        Each stream waits for the debt of all: the next bytes of any of them come after those already taken.
        """
        if math.isinf(self._rate_bps):
            return 0.0
        self._paid_s = max(self._paid_s, now_s - _BURST_S) + 8 * taken_bytes / self._rate_bps
        return max(0.0, self._paid_s - now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times and amounts that bound what a client can hold."""

    #: For the first frame.
    hello_timeout_s: float = 5.0
    #: Not one byte for so long ends a stream.
    stall_timeout_s: float = 30.0
    #: A client whose schedule holds it says KeepAlive; after so long without data that is not enough.
    hold_timeout_s: float = 600.0
    #: How long a connection waits for the result; it can be fetched later.
    result_timeout_s: float = 3600.0
    keepalive_s: float = 10.0
    #: How long a refused client may take to read why.
    linger_s: float = 1.0
    #: How long the connection of a refused stranger stays open.
    held_s: float = 5.0
    #: How long the order of a job waits that is not known here: its command may be slower than its client.
    announcement_s: float = 2.0
    places: Places = field(default_factory=Places)


@dataclass(slots=True, kw_only=True)
class Port:
    """State shared by the sessions of one data port; used on its event loop only."""

    host: str
    verifier: Verifier
    handler: TransferHandler
    ledger: TokenLedger
    #: Seconds since the epoch, for deadlines of tokens.
    clock: Callable[[], float]
    limits: Limits
    ingress: TokenBucket
    workers: Executor
    counters: Counter[str]
    connections: Connections
    held: Held
    #: Connections that have not shown their first frame, and are no sessions yet.
    doors: "set[Door]" = field(default_factory=set)
    #: Held by streams that hash what an earlier one left; the others need worker threads for each piece.
    hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_HASHING))
    #: Jobs whose input is arriving now.
    receiving: set[str] = field(default_factory=set)
    #: Refusals that the log shows.
    shown: Allowance = field(default_factory=lambda: Allowance(at_once=20, per_s=1))
    #: Strangers that are told why they are refused; others are held without a word, for which their programs wait.
    told: Allowance = field(default_factory=lambda: Allowance(at_once=20, per_s=1))

    def verify(self, token: str, connection: Connection) -> TransferGrant:
        """Return what a token permits here; one that the door has verified is not verified again."""
        known, connection.verified = connection.verified, None
        if known is not None and known[0] == token:
            return known[1]
        return self.verifier.verify(token, self.clock())

    def log_refusal(self, what: str, refused: TransferRefused) -> None:
        """Count a refusal, and log it as far as clients do not fill the log by it."""
        self.counters[refused.reason] += 1
        if self.shown.take(time.monotonic()):
            missed = self.shown.missed()
            more = f" ({missed} more since the last one shown)" if missed else ""
            LOG.info("%s: refused, %s: %s%s", what, refused.reason, refused, more)


_BLOCK_BYTES = 2**20


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise TransferRefused(
                "storage_full", "the responder's spool is full; the job must run elsewhere"
            ) from error
        raise TransferRefused(
            "storage_error", f"the responder cannot write its spool: {os.strerror(error.errno or 0)}"
        ) from error


class Spool:
    """One input on its way: ``PATH.part`` while it is incomplete, ``PATH`` when length and digest are right."""

    def __init__(self, path: Path, input_bytes: int) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._input_bytes = input_bytes
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        #: How much an earlier stream left.
        self.found_bytes = 0
        #: How much is written and in the digest.
        self.size_bytes = 0

    def open(self) -> None:
        """Open what an earlier stream left, or a new file."""
        with _storage_errors():
            if self._path.exists():
                # Complete, but the agent died before it took note: the digest is checked again, no byte is sent again.
                self._path.replace(self._part)
            descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "r+b", buffering=0)
            self.found_bytes = os.fstat(descriptor).st_size
            if self.found_bytes > self._input_bytes:
                self._file.truncate(0)
                self.found_bytes = 0

    def hash_found(self) -> None:
        """Take some more of what was found into the digest."""
        step_end = min(self.found_bytes, self.size_bytes + _HASH_STEP_BYTES)
        with _storage_errors():
            while self.size_bytes < step_end:
                block = self._opened.read(min(_BLOCK_BYTES, step_end - self.size_bytes))
                if not block:
                    raise OSError(errno.EIO, "the partial input was truncated while it was read")
                self._digest.update(block)
                self.size_bytes += len(block)

    def write(self, piece: memoryview) -> None:
        """Append a piece of the input."""
        self._digest.update(piece)
        self.size_bytes += len(piece)
        with _storage_errors():
            while piece:
                piece = piece[self._opened.write(piece) :]

    def finish(self, sha256: str) -> None:
        """Make the input durable under its final name, if it is what the client meant to send."""
        if self.size_bytes < self._input_bytes:
            raise TransferRefused("short", f"the input ends after {self.size_bytes} of {self._input_bytes} bytes")
        if self._digest.hexdigest() != sha256:
            raise TransferRefused("digest_mismatch", "the input was corrupted in transit; send it again")
        with _storage_errors():
            os.fsync(self._opened.fileno())
            self._part.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def discard(self) -> None:
        """Remove what is there; it will not be continued."""
        with _storage_errors():
            self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; what is incomplete stays for the next stream."""
        if self._file is not None:
            self._file.close()

    @property
    def _opened(self) -> BinaryIO:
        assert self._file is not None, "call open() first"  # noqa: S101
        return self._file


# ---- A connection until its first frame is here; a token that opens nothing is refused at the door

_PIECE_BYTES = 4096
#: The state of a connection whose ends are both open, in the first byte of ``struct tcp_info``.
_ESTABLISHED = 1


class Door:
    """One connection without TLS, used on the event loop of its port.  `admit` gets it with all that it has said.

    It is heard at once: one that has sent a bad token, or has hung up, costs the loop nothing more.
    """

    def __init__(
        self, port: Port, sock: socket.socket, address: str, admit: Callable[[Connection, bytes], object]
    ) -> None:
        self._port, self._sock, self._address, self._admit = port, sock, address, admit
        self._said = bytearray()
        self._loop = asyncio.get_running_loop()
        #: None until the connection has to wait, or is let in: so long it is not counted.
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Hear what the client has sent, or wait for it."""
        if not self._hear():
            self._wait()

    def close(self) -> None:
        """Drop the connection."""
        self._end()
        self._leave()
        self._sock.close()

    def _enter(self) -> Connection:
        """Count the connection; the oldest stranger goes where they are too many."""
        if self._connection is None:
            self._connection, crowded = self._port.connections.enter(self._address, self.close)
            self._port.counters["busy"] += crowded
        return self._connection

    def _leave(self) -> None:
        if self._connection is not None:
            self._port.connections.leave(self._connection)

    def _wait(self) -> None:
        self._enter()
        self._timer = self._loop.call_later(self._port.limits.hello_timeout_s, self._refuse_silence)
        self._loop.add_reader(self._sock, self._hear)
        self._port.doors.add(self)

    def _hear(self) -> bool:
        """Take what was sent since; return whether that decides about the connection."""
        try:
            piece = b"" if has_left(self._sock) else self._sock.recv(_PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self._port.counters["disconnected"] += 1
            self.close()
            return True
        return self._heard(piece)

    def _heard(self, piece: bytes) -> bool:
        self._said += piece
        try:
            first = _first_frame(self._said)
        except frames.BadFrame as error:
            self._refuse(TransferRefused("bad_frame", str(error)))
            return True
        if first is None:
            return False
        verified = None
        try:
            verified = first.token, self._port.verifier.verify(first.token, self._port.clock())
        except TransferRefused as refused:
            # A lane refuses an order by itself, and others on it may be good; not where strangers are many.
            if isinstance(first, frames.Hello) or not self._port.told.take(self._loop.time()):
                self._refuse(refused)
                return True
        connection = self._enter()
        connection.verified = verified
        self._end()
        self._admit(connection, bytes(self._said))
        return True

    def _refuse_silence(self) -> None:
        self._refuse(no_hello(self._port.limits.hello_timeout_s))

    def _refuse(self, refused: TransferRefused) -> None:
        self._end()
        self._leave()
        self._port.log_refusal("connection", refused)
        if self._port.told.take(self._loop.time()):
            with contextlib.suppress(OSError):
                self._sock.send(frames.encode(frames.Refuse(refused.reason, str(refused))))
        self._port.held.hold(self._sock, self._address)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._sock)
            self._port.doors.discard(self)
            self._timer = None


def has_left(sock: socket.socket) -> bool:
    """Return whether the client has hung up: then nothing that it said is read or verified."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED


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
