"""One accelerator's channel into a guest: takes requests, computes them on its slot, sends results."""

import contextlib
import hashlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from fpga_pool.guest.frames import CHUNK_BYTES, Lines, Message, encode
from fpga_pool.model.allowance import Allowance
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, ServiceUnavailable
from fpga_pool.services.agent.instances.slots import GuestUse

LOG = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
#: Interval at which a channel checks whether it is to close.
POLL_S = 0.5
#: A guest that reads nothing of a result for this long is disconnected.
STALL_S = 60.0
#: Pause before retrying a channel without a listener.
RECONNECT_S = 0.5
#: Interval at which a channel checks whether its slot is ready.
NOT_READY_S = 0.1
#: Interval of the messages to a guest while its request is computed.
SIGN_OF_LIFE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """Limits of a guest's requests."""

    max_input_bytes: int = 256 << 20
    #: A computation that takes longer is stopped.
    run_s: float = 600.0


@dataclass(slots=True)
class _Request:
    """A request whose input is being received."""

    id: str
    function: str
    announced_bytes: int
    file: BinaryIO
    received_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class GuestChannel:
    """Serves one port of one guest in its own thread, and reconnects when a connection ends."""

    def __init__(
        self,
        instance: str,
        slot: str,
        guest: GuestUse,
        connect: Callable[[], socket.socket],
        scratch: Path,
        limits: ChannelLimits,
    ) -> None:
        self.slot = slot
        self._instance = instance
        self._guest = guest
        self._connect = connect
        self._source, self._sink = scratch.with_suffix(".in"), scratch.with_suffix(".out")
        self._limits = limits
        self._closing = threading.Event()
        self._end: socket.socket | None = None
        self._request: _Request | None = None
        #: Limits the number of refusals of the guest that are logged.
        self._shown = Allowance(at_once=10, per_s=0.2)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"guest-{slot}")
        self._thread = threading.Thread(target=self._run, name=f"channel-{slot}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; pending requests of the guest are lost, which the guest detects by the end of the stream."""
        self._closing.set()
        if (end := self._end) is not None:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._forget_request()
        for path in (self._source, self._sink):
            path.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._guest.is_for(self._instance):  # the guest waits until its slot is loaded
                self._closing.wait(NOT_READY_S)
                continue
            try:
                with self._connect() as end:
                    LOG.info("slot %s: connected with instance %s", self.slot, self._instance)
                    self._end = end
                    self._serve(end)
            except OSError as error:
                LOG.debug("slot %s: channel of instance %s: %s", self.slot, self._instance, error)
            except FpgaPoolError as error:
                LOG.warning("slot %s: channel of instance %s: %s", self.slot, self._instance, error)
            self._end = None
            self._forget_request()
            self._closing.wait(RECONNECT_S)

    def _serve(self, end: socket.socket) -> None:
        """Answer requests until either side closes the connection."""
        end.settimeout(STALL_S)
        lines = Lines()
        while not self._closing.is_set():
            if not select.select([end], [], [], POLL_S)[0]:
                continue
            data = end.recv(READ_BYTES)
            if not data:
                return
            for message in lines.feed(data):
                for answer in self._answers(end, message):
                    end.sendall(encode(answer))

    def _answers(self, end: socket.socket, message: Message) -> Iterator[Message]:
        request = message["id"]
        try:
            if message["op"] == "describe":
                yield self._about(request)
            elif message["op"] == "run":
                self._begin(message)
            elif self._request is not None and request == self._request.id:
                if message["op"] == "data":
                    self._take(message)
                elif message["op"] == "end":
                    yield from self._compute(end, message)
        except (FpgaPoolError, OSError) as error:
            self._forget_request()
            if self._shown.take(time.monotonic()):
                missed = self._shown.missed()
                LOG.info("slot %s: request of instance %s: %r (%d more since the last one shown)",
                         self.slot, self._instance, str(error)[:100], missed)  # fmt: skip
            code = getattr(error, "code", "fpga_pool.agent_error")
            yield {"id": request, "op": "error", "code": code, "message": str(error)}

    def _about(self, request: str) -> Message:
        return {
            "id": request,
            "op": "about",
            "function": self._guest.function(self._instance),
            "slot": self.slot,
            "max_input_bytes": self._limits.max_input_bytes,
        }

    # One request ------------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        """Begin a new request, and discard an incomplete one, because the program that sent it is gone."""
        self._forget_request()
        size, function = message.get("bytes"), message.get("function", "")
        if type(size) is not int or size < 0 or not isinstance(function, str):
            raise InvalidInput("run: expected a number of bytes and the name of a function")
        if size > self._limits.max_input_bytes:
            raise InvalidInput(f"input: {size} bytes; this accelerator accepts at most {self._limits.max_input_bytes}")
        held = self._guest.function(self._instance)
        if function not in ("", held):
            raise InvalidInput(f"this accelerator is {held}, not {function}")
        self._request = _Request(message["id"], function, size, _open_private(self._source))

    def _take(self, message: Message) -> None:
        request, data = self._request, message.get("data", b"")
        assert request is not None  # noqa: S101
        request.received_bytes += len(data)
        if request.received_bytes > request.announced_bytes:
            raise InvalidInput(f"input: more than the announced {request.announced_bytes} bytes arrived")
        request.digest.update(data)
        request.file.write(data)

    def _compute(self, end: socket.socket, message: Message) -> Iterator[Message]:
        request = self._request
        assert request is not None  # noqa: S101
        request.file.close()
        if request.received_bytes != request.announced_bytes or message.get("sha256") != request.digest.hexdigest():
            raise InvalidInput("input: corrupted or incomplete; send it again")
        future = self._pool.submit(
            self._guest.run,
            self._instance,
            request.function,
            request.received_bytes,
            self._source,
            self._sink,
            self._limits.run_s,
        )
        try:
            while not self._has_ended(future):
                if self._closing.is_set():
                    raise ServiceUnavailable("this accelerator is being detached")
                end.sendall(encode({"id": request.id, "op": "busy"}))
        except (FpgaPoolError, OSError):
            # Its result cannot be delivered, and the next request needs its files.
            while not wait([future], POLL_S).done:
                self._guest.stop()
            raise
        seconds = future.result()
        LOG.debug("slot %s: computed for instance %s in %.3f s", self.slot, self._instance, seconds)
        self._request = None
        yield from self._result(request.id)

    def _has_ended(self, future: "Future[float]") -> bool:
        return bool(wait([future], SIGN_OF_LIFE_S).done)

    def _result(self, request: str) -> Iterator[Message]:
        digest = hashlib.sha256()
        try:
            with self._sink.open("rb") as file:
                while data := file.read(CHUNK_BYTES):
                    digest.update(data)
                    yield {"id": request, "op": "data", "data": data}
        finally:
            self._sink.unlink(missing_ok=True)
        yield {"id": request, "op": "end", "sha256": digest.hexdigest()}

    def _forget_request(self) -> None:
        if self._request is not None:
            with contextlib.suppress(OSError):  # an error of a full disk is irrelevant, as the file is discarded
                self._request.file.close()
            self._request = None


def _open_private(path: Path) -> BinaryIO:
    """Open an empty file that only the agent's user can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")
