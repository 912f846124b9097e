"""TCP streams that count the data that arrives, and checks of their goodput against their rate limits."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from fpga_pool.drivers.egress.base import Flow
from support.waiting import SOON_S

RAMP_S, WINDOW_S = 1.0, 4.0
#: A class saves up for 40 ms; a host that does not run for longer loses rate, whatever shapes the traffic.  On a host
#: that runs when it should, threads wake up late by at most this time.
STARVED_S = 0.02
MAX_WINDOWS = 8


@dataclass
class Stream:
    """A TCP stream at full speed, with a receiver that counts."""

    near: socket.socket
    far: socket.socket
    received_bytes: int = 0
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> "Stream":
        self._run(self._send)
        self.receive()
        return self

    def receive(self) -> None:
        """Start to count the data that arrives, whatever sends it."""
        self._run(self._receive)

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self.threads.append(thread)

    def stop(self) -> None:
        # Data that is still queued must not delay the end.
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(SOON_S)
            assert not thread.is_alive()
        self.near.close()
        self.far.close()

    def flow(self, key: str) -> Flow:
        source, destination = self.near.getsockname(), self.near.getpeername()
        return Flow(
            key=key,
            source_address=source[0],
            source_port=source[1],
            destination_address=destination[0],
            destination_port=destination[1],
        )

    def _send(self) -> None:
        block = bytes(1 << 18)
        with contextlib.suppress(OSError):
            while True:
                self.near.sendall(block)

    def _receive(self) -> None:
        buffer = bytearray(1 << 18)
        with contextlib.suppress(OSError):
            while count := self.far.recv_into(buffer):
                self.received_bytes += count


class Canary:
    """Measures how late a thread wakes up after sleeping for 5 ms: a host that is busy otherwise also sends late."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SOON_S)

    def _watch(self) -> None:
        while not self._stop.is_set():
            began_s = time.monotonic()
            time.sleep(0.005)
            self.worst_s = max(self.worst_s, time.monotonic() - began_s - 0.005)


def goodputs_bps(streams: list[Stream], window_s: float) -> tuple[list[float], float]:
    """Return the goodput of each stream at its receiver, and by how much a thread woke up late meanwhile."""
    with Canary() as canary:
        before, began_s = [stream.received_bytes for stream in streams], time.monotonic()
        time.sleep(window_s)
        after, took_s = [stream.received_bytes for stream in streams], time.monotonic() - began_s
    return [8 * (end - begin) / took_s for begin, end in zip(before, after, strict=True)], canary.worst_s


def _wrong(found_bps: Sequence[float], rates_bps: Sequence[float], tolerance: float) -> list[str]:
    """Return a description of each relative error above the tolerance."""
    errors = [goodput / rate - 1 for goodput, rate in zip(found_bps, rates_bps, strict=True)]
    return [
        f"{rate / 1e6:g} Mbit/s: {error:+.2%}"
        for rate, error in zip(rates_bps, errors, strict=True)
        if abs(error) > tolerance
    ]


def check_rates(
    streams: list[Stream], rates_bps: Sequence[float], *, window_s: float = WINDOW_S, tolerance: float = 0.01
) -> None:
    """Check the goodputs; measure again only if the host did not run when it should have."""
    windows = []
    for _ in range(MAX_WINDOWS):
        found_bps, late_s = goodputs_bps(streams, window_s)
        windows.append((_wrong(found_bps, rates_bps, tolerance), f"the host was late by up to {late_s:.3f} s"))
        if not windows[-1][0] or late_s <= STARVED_S:
            break
    assert not windows[-1][0], windows
