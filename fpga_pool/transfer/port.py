"""State shared by the sessions of one data port: limits, the token bucket of its read rate, and spool files of inputs.

Methods of `Spool` block, so sessions call them in a worker thread.
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

#: Error numbers of a full disk.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

#: Burst after a pause, as a duration at full rate.  A port that had no CPU for a while must be able to catch up, or the
#: capacity of its links would be lost.
_BURST_S = 0.25

#: Step size for hashing the partial inputs of earlier streams, and the number of worker threads that may do so at once.
_HASH_STEP_BYTES, _HASHING = 4 * 2**20, 2


class TokenBucket:
    """A rate limit shared by any number of streams; used by one thread."""

    def __init__(self, rate_bps: float, now_s: float) -> None:
        if not rate_bps > 0:
            raise InvalidInput(f"rate_bps: expected more than 0, got {rate_bps}")
        self._rate_bps = rate_bps
        #: When the bytes taken so far are paid for at the rate.
        self._paid_s = now_s

    def take(self, taken_bytes: int, now_s: float) -> float:
        """Count bytes that were read; return how many seconds to wait before reading more.

        Each stream waits until the bytes of all streams are paid for.
        """
        if math.isinf(self._rate_bps):
            return 0.0
        self._paid_s = max(self._paid_s, now_s - _BURST_S) + 8 * taken_bytes / self._rate_bps
        return max(0.0, self._paid_s - now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the resources that clients can occupy."""

    #: Timeout of the first frame.
    hello_timeout_s: float = 5.0
    #: Time without a single byte after which a stream ends.
    stall_timeout_s: float = 30.0
    #: Time without data after which a stream ends even if the client, held by its schedule, sends KeepAlive.
    hold_timeout_s: float = 600.0
    #: Time that a connection waits for the result, which can be fetched later.
    result_timeout_s: float = 3600.0
    keepalive_s: float = 10.0
    #: Time for a refused client to read the reason.
    linger_s: float = 1.0
    #: Time for which the connection of a refused unauthenticated client stays open.
    held_s: float = 5.0
    #: Time to wait for the announcement of an unknown job, as its command may arrive later than its client.
    announcement_s: float = 2.0
    places: Places = field(default_factory=Places)


@dataclass(slots=True, kw_only=True)
class Port:
    """State shared by the sessions of one data port; used on its event loop only."""

    host: str
    verifier: Verifier
    handler: TransferHandler
    ledger: TokenLedger
    #: Returns seconds since the epoch, to check deadlines of tokens.
    clock: Callable[[], float]
    limits: Limits
    ingress: TokenBucket
    workers: Executor
    counters: Counter[str]
    connections: Connections
    held: Held
    #: Connections that have not sent their first frame, and are not sessions yet.
    doors: "set[Door]" = field(default_factory=set)
    #: Acquired by streams that hash partial inputs, to leave worker threads to streams that receive data.
    hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_HASHING))
    #: Jobs whose input is arriving now.
    receiving: set[str] = field(default_factory=set)
    #: Rate limit of refusals in the log.
    shown: Allowance = field(default_factory=lambda: Allowance(at_once=20, per_s=1))
    #: Rate limit of reasons sent to refused unauthenticated clients; others get no response, so that they wait for one.
    error_replies: Allowance = field(default_factory=lambda: Allowance(at_once=20, per_s=1))

    def verify(self, token: str, connection: Connection) -> TransferGrant:
        """Return the grant of a token; a token that the door has verified is not verified again."""
        known, connection.verified = connection.verified, None
        if known is not None and known[0] == token:
            return known[1]
        return self.verifier.verify(token, self.clock())

    def log_refusal(self, what: str, refused: TransferRefused) -> None:
        """Count a refusal, and log it unless too many were logged recently."""
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


def place_file(source: Path, place: Path) -> None:
    """Rename a file, whose content is already durable, so that the new name is durable, too."""
    source.replace(place)
    sync_directory(place.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class Spool:
    """One input in progress: ``PATH.part`` while it is incomplete, ``PATH`` once length and digest were verified."""

    def __init__(self, path: Path, input_bytes: int) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._input_bytes = input_bytes
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        #: Bytes that an earlier stream left.
        self.found_bytes = 0
        #: Bytes that are written and included in the digest.
        self.size_bytes = 0

    def open(self) -> None:
        """Open the partial input that an earlier stream left, or a new file."""
        with _storage_errors():
            if self._path.exists():
                # Complete, but the agent died before recording it: only the digest is checked again.
                self._path.replace(self._part)
            descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "r+b", buffering=0)
            self.found_bytes = os.fstat(descriptor).st_size
            if self.found_bytes > self._input_bytes:
                self._file.truncate(0)
                self.found_bytes = 0

    def hash_found(self) -> None:
        """Add the next step of the found bytes to the digest."""
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
        """Store the input durably under its final name. Raises TransferRefused if length or digest do not match."""
        if self.size_bytes < self._input_bytes:
            raise TransferRefused("short", f"the input ends after {self.size_bytes} of {self._input_bytes} bytes")
        if self._digest.hexdigest() != sha256:
            raise TransferRefused("digest_mismatch", "the input was corrupted in transit; send it again")
        with _storage_errors():
            os.fsync(self._opened.fileno())
            place_file(self._part, self._path)

    def discard(self) -> None:
        """Remove the partial input, which will not be continued."""
        with _storage_errors():
            self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; an incomplete input stays for the next stream."""
        if self._file is not None:
            self._file.close()

    @property
    def _opened(self) -> BinaryIO:
        assert self._file is not None, "call open() first"  # noqa: S101
        return self._file


# ---- A connection until its first frame has arrived; a client with an invalid token is refused at this stage

_PIECE_BYTES = 4096
#: The state of a connection whose ends are both open, in the first byte of ``struct tcp_info``.
_ESTABLISHED = 1


class Door:
    """One connection without TLS before its first frame; used on the event loop of its port.

    `admit` is called with the connection and all bytes read from it.  Bytes that have already arrived are read at once,
    so that a client that sent an invalid token, or has disconnected, needs no further processing in the loop.
    """

    def __init__(
        self, port: Port, sock: socket.socket, address: str, admit: Callable[[Connection, bytes], object]
    ) -> None:
        self._port, self._sock, self._address, self._admit = port, sock, address, admit
        self._said = bytearray()
        self._loop = asyncio.get_running_loop()
        #: None, and not counted, until the connection has to wait or is admitted.
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Read what the client has sent, or wait for it."""
        if not self._hear():
            self._wait()

    def close(self) -> None:
        """Drop the connection."""
        self._end()
        self._leave()
        self._sock.close()

    def _enter(self) -> Connection:
        """Count the connection; if there are too many unauthenticated ones, the oldest is dropped."""
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
        """Read the bytes that have arrived; return whether they decide about the connection."""
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
            # A lane refuses single orders, as others may be valid; but not if many clients were refused recently.
            if isinstance(first, frames.Hello) or not self._port.error_replies.take(self._loop.time()):
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
        if self._port.error_replies.take(self._loop.time()):
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
    """Return whether the client has disconnected, so that its data need not be read or verified."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED


def no_hello(timeout_s: float) -> TransferRefused:
    """Return the refusal of a client that has not sent its first frame in time."""
    return TransferRefused("no_hello", f"no first frame within {timeout_s:g} s")


def check_first(frame: frames.Frame | frames.Header) -> frames.Hello | frames.Order | frames.Fetch:
    """Return the frame if it may be the first of a connection, else raise BadFrame."""
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
