"""The accelerator ports of this machine, and sequential requests to one of them."""

import errno
import fcntl
import hashlib
import os
import select
import time
import uuid
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple

from fpga_pool.guest.frames import CHUNK_BYTES, PORT_PREFIX, Lines, Message, encode

#: Bytes read from a port at a time.
READ_BYTES = 64 * 1024
#: Pause before a retry on a port that is not connected on the host, in seconds.
PAUSE_S = 0.2
#: Maximum number of attempts at a request.
ATTEMPTS = 3
#: Directory of the ports by name created by udev, and the kernel's directory, for systems without udev.
NAMED = Path("/dev/virtio-ports")
KERNEL = Path("/sys/class/virtio-ports")
DEVICES = Path("/dev")


class NoAccelerator(Exception):
    """The machine has no accelerator, or none with that number."""


def all_ports() -> "List[Tuple[int, str]]":
    """Return number and device of every accelerator, ordered by number."""
    found: "Dict[str, Path]" = {}
    for entry in _entries(KERNEL):
        try:
            found[(entry / "name").read_text().strip()] = DEVICES / entry.name
        except OSError:  # the port was removed, or is a console without a name
            continue
    found.update((entry.name, entry) for entry in _entries(NAMED))
    numbers = {name[len(PORT_PREFIX) :]: path for name, path in found.items() if name.startswith(PORT_PREFIX)}
    return sorted((int(number), str(path)) for number, path in numbers.items() if number.isdigit())


def find(number: int = 0) -> str:
    """Return the device of one accelerator. Raises NoAccelerator, which lists the existing ones."""
    ports = dict(all_ports())
    if number in ports:
        return ports[number]
    if ports:
        raise NoAccelerator(
            "no accelerator {}; available: {}".format(number, ", ".join(str(known) for known in sorted(ports)))
        )
    raise NoAccelerator(
        "no accelerator: no port {}* in {} or {}; check that the machine's flavor has fpga_pool:function and that the "
        "kernel module virtio_console is loaded".format(PORT_PREFIX, NAMED, KERNEL)
    )


def _entries(directory: Path) -> "List[Path]":
    try:
        return list(directory.iterdir())
    except OSError:
        return []


# ---- Requests


class RequestFailed(Exception):
    """The host reported an error, with a code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Interrupted(Exception):
    """The host has closed its side of the port or does not respond; the request may be repeated."""


class Accelerator:
    """The accelerator behind a port; use it in a `with` statement, and from one thread.

    `timeout_s` limits how long the host may not respond.  An interrupted request, for example after a restart of the
    host's agent, is repeated, up to `ATTEMPTS` attempts in total.
    """

    def __init__(self, path: str, timeout_s: float = 60.0) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._port = -1
        self._lines = Lines()

    def __enter__(self) -> "Accelerator":
        self._open()
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port."""
        if self._port >= 0:
            os.close(self._port)
            self._port = -1

    def describe(self) -> Message:
        """Return the accelerator's description: its function, and the maximum size of an input."""
        return self._repeated(self._describe)

    def run(self, source: BinaryIO, sink: BinaryIO, function: str = "") -> int:
        """Compute `sink` from `source` (both seekable files); return the size of the result in bytes.

        The default function is that of the machine's flavor.  Raises RequestFailed, with the host's reason.
        """
        start, end = source.tell(), sink.tell()

        def attempt() -> int:
            source.seek(start)
            sink.seek(end)
            sink.truncate()
            return self._run(source, sink, function)

        return self._repeated(attempt)

    def _repeated(self, attempt: "Callable[[], Any]") -> Any:
        for number in range(1, ATTEMPTS + 1):
            try:
                if self._port < 0:
                    self._open()
                return attempt()
            except Interrupted:
                self.close()
                if number == ATTEMPTS:
                    raise
                time.sleep(PAUSE_S)
        raise AssertionError("unreachable")

    def _open(self) -> None:
        """Open the port; wait while another program has it open."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                self._port = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENXIO) or time.monotonic() > until_s:
                    raise
                time.sleep(PAUSE_S)
            else:
                fcntl.fcntl(self._port, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
                self._lines = Lines()
                return

    def _describe(self) -> Message:
        request = str(uuid.uuid4())
        self._write(encode({"id": request, "op": "describe"}))
        return next(self._answers(request, "about"))

    def _run(self, source: BinaryIO, sink: BinaryIO, function: str) -> int:
        request = str(uuid.uuid4())
        start = source.tell()
        size = source.seek(0, os.SEEK_END) - start
        source.seek(start)
        self._send(request, source, function, size)
        digest, received = hashlib.sha256(), 0
        for message in self._answers(request, "end"):
            data = message.get("data", b"")
            digest.update(data)
            received += len(data)
            sink.write(data)
            if message["op"] == "end" and message.get("sha256") != digest.hexdigest():
                raise Interrupted("the result was corrupted in transit")
        return received

    def _send(self, request: str, source: BinaryIO, function: str, size: int) -> None:
        self._write(encode({"id": request, "op": "run", "function": function, "bytes": size}))
        digest = hashlib.sha256()
        while True:
            data = source.read(CHUNK_BYTES)
            if not data:
                break
            digest.update(data)
            self._write(encode({"id": request, "op": "data", "data": data}))
        self._write(encode({"id": request, "op": "end", "sha256": digest.hexdigest()}))

    def _answers(self, request: str, last: str) -> "Iterator[Message]":
        """Yield the host's messages about a request up to its last one; messages of older requests are skipped."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            for message in self._lines.feed(self._read(until_s)):
                if message["id"] != request:
                    continue
                until_s = time.monotonic() + self._timeout_s
                if message["op"] == "error":
                    raise _failure(message)
                yield message
                if message["op"] == last:
                    return

    def _read(self, until_s: float) -> bytes:
        while True:
            self._wait(select.POLLIN, until_s)
            try:
                data = os.read(self._port, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Interrupted("{}: {}".format(self._path, error)) from error
            if not data:
                raise Interrupted("{}: the host's side is closed".format(self._path))
            return data

    def _write(self, data: bytes) -> None:
        until_s = time.monotonic() + self._timeout_s
        while data:
            self._wait(select.POLLOUT, until_s)
            try:
                data = data[os.write(self._port, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Interrupted("{}: {}".format(self._path, error)) from error

    def _wait(self, event: int, until_s: float) -> None:
        """Wait until the port can be read or written. Raises Interrupted if that takes until `until_s`."""
        poll = select.poll()
        poll.register(self._port, event)
        while True:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise Interrupted("{}: the host did not answer in {:g} s".format(self._path, self._timeout_s))
            ready = dict(poll.poll(min(left_s, 1.0) * 1000)).get(self._port, 0)
            if ready & event:
                return
            if ready & (select.POLLHUP | select.POLLERR):
                # The port is not connected on the host, not yet or no longer; it may be soon.
                time.sleep(PAUSE_S)


def _failure(message: Message) -> Exception:
    code: Optional[str] = message.get("code")
    sentence = str(message.get("message", ""))
    if message.get("again"):
        return Interrupted(sentence)
    return RequestFailed(str(code), sentence)
