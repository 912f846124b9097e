"""Egress limits without root privileges: the kernel paces the sender's own sockets (SO_MAX_PACING_RATE).

TCP does the pacing if the interface has no `fq` queue (Linux 4.13 and later), so the host needs no configuration.
This works only in the process that owns the socket, which is therefore passed to `PacingDriver.attach`.
"""

import math
import socket
import struct
import threading
from dataclasses import dataclass

from fpga_pool.drivers.egress.base import EgressDriver, Flow, LimitedFlow, check_rate
from fpga_pool.model.exceptions import Conflict, NotFound

#: From asm-generic/socket.h; missing in Python's `socket`.
SO_MAX_PACING_RATE = 47
#: Bytes per second as an unsigned long, as the older 32-bit option is limited to 34 Gbit/s.
_RATE = struct.Struct("@L")
_UNLIMITED: int = 2 ** (8 * _RATE.size) - 1
#: Limit of unsent bytes in the kernel, so that a new rate takes effect at once.
#: Bytes in flight are not limited.
_UNSENT_BYTES = 128 * 1024


def pacing_value(rate_bps: float) -> int:
    """Return the kernel's bytes per second for a positive rate."""
    if math.isinf(rate_bps):
        return _UNLIMITED
    return min(max(1, int(rate_bps / 8)), _UNLIMITED - 1)


@dataclass
class _PacedFlow:
    flow: Flow
    rate_bps: float = math.inf
    sock: socket.socket | None = None

    def apply(self) -> None:
        # The kernel has no rate of 0: it sends its few buffered bytes, and the sender passes no more to it.
        if self.rate_bps > 0 and self.sock is not None and self.sock.fileno() != -1:
            self.sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, _RATE.pack(pacing_value(self.rate_bps)))


class PacingDriver(EgressDriver):
    """Paces sockets of this process."""

    def __init__(self) -> None:
        self._flows: dict[str, _PacedFlow] = {}
        self._lock = threading.Lock()

    def open(self, flow: Flow, rate_bps: float) -> None:
        """Remember the flow; its rate takes effect once the socket is attached."""
        check_rate(rate_bps)
        with self._lock:
            paced = self._flows.setdefault(flow.key, _PacedFlow(flow))
            if paced.flow != flow:
                raise Conflict(f"flow {flow.key}: already open with other addresses")
            paced.rate_bps = rate_bps
            paced.apply()

    def attach(self, key: str, sock: socket.socket) -> "FlowControl":
        """Pace this socket at the flow's rate, also after changes of the rate; return the handle for its sender."""
        with self._lock:
            paced = self._find(key)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
            paced.sock = sock
            paced.apply()
            return FlowControl(self, key)

    def set_rate(self, key: str, rate_bps: float) -> None:
        """Change the rate of the socket; see `FlowControl.set_rate`."""
        check_rate(rate_bps)
        with self._lock:
            paced = self._find(key)
            paced.rate_bps = rate_bps
            paced.apply()

    def close(self, key: str) -> None:
        """Close the flow and stop pacing its socket."""
        with self._lock:
            paced = self._flows.pop(key, None)
            if paced is not None:
                paced.rate_bps = math.inf
                paced.apply()

    def flows(self) -> tuple[LimitedFlow, ...]:
        """Return the open flows in the order they were opened."""
        with self._lock:
            return tuple(LimitedFlow(paced.flow, paced.rate_bps) for paced in self._flows.values())

    def _find(self, key: str) -> _PacedFlow:
        try:
            return self._flows[key]
        except KeyError:
            raise NotFound(f"flow {key}: not open") from None


class FlowControl:
    """One flow of the driver, for the code that sends on it."""

    def __init__(self, driver: PacingDriver, key: str) -> None:
        self._driver = driver
        self._key = key

    def set_rate(self, bps: float) -> None:
        """Limit the flow from now on; at 0 the sender must send nothing."""
        self._driver.set_rate(self._key, bps)
