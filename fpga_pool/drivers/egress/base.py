"""Interface of egress drivers: a driver holds each flow that leaves this host to a rate, changed at any time.

A driver knows a flow by its addresses and ports alone, so that it may run in another process than the sender.
Entry-point group: `fpga_pool.egress_drivers`.
"""

import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fpga_pool.model.exceptions import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One TCP stream as the network sees it; `key` is the caller's name for it."""

    key: str
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    #: Uuid of the virtual machine of this host that sends; "" = whatever has the source address sends.
    server: str = ""

    def __post_init__(self) -> None:
        for name in ("source_port", "destination_port"):
            port = getattr(self, name)
            if not 0 < port < 2**16:
                raise InvalidInput(f"{name}: expected 1..65535, got {port}")


@dataclass(frozen=True, slots=True)
class LimitedFlow:
    """A flow and the rate it is held to."""

    flow: Flow
    rate_bps: float


class EgressDriver(abc.ABC):
    """Rates are bits per second; 0 holds the flow, `inf` does not limit it.  All methods may come from any thread."""

    @abc.abstractmethod
    def open(self, flow: Flow, rate_bps: float) -> None:
        """Limit a new flow; the same again is a repeat and sets the rate, another flow under the key is a Conflict."""

    @abc.abstractmethod
    def set_rate(self, key: str, rate_bps: float) -> None:
        """Change the rate of an open flow, NotFound if there is none."""

    @abc.abstractmethod
    def close(self, key: str) -> None:
        """Forget a flow and lift its limit; nothing happens where it is not open."""

    @abc.abstractmethod
    def flows(self) -> tuple[LimitedFlow, ...]:
        """Return what is limited now, as observed, for reconciliation."""

    def follow(self, taps: Mapping[tuple[str, str], str]) -> frozenset[str]:
        """Hold flows of these virtual machines at their taps: devices by server and address; others have ended.

        Return the devices at which it can.
        """
        return frozenset()

    # Many flows at once: a driver overrides these where it does better than one by one.

    def open_all(self, limits: Iterable[LimitedFlow]) -> None:
        """Open each flow at its rate; `open` says what a repeat is."""
        for limit in limits:
            self.open(limit.flow, limit.rate_bps)

    def set_rates(self, rates_bps: Mapping[str, float]) -> None:
        """Change the rates of open flows, by key."""
        for key, rate_bps in rates_bps.items():
            self.set_rate(key, rate_bps)

    def close_all(self, keys: Iterable[str]) -> None:
        """Forget these flows."""
        for key in keys:
            self.close(key)

    def reset(self) -> None:
        """Forget every flow and lift every limit, those that an earlier process left on this host included."""
        self.close_all([limited.flow.key for limited in self.flows()])


def check_rate(rate_bps: float) -> None:
    """Refuse NaN and negative rates."""
    if not rate_bps >= 0:
        raise InvalidInput(f"rate_bps: expected at least 0, got {rate_bps}")
