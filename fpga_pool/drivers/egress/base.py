"""Interface of egress drivers: a driver limits each flow that leaves this host to a rate, which may change at any time.

A driver identifies a flow by its addresses and ports only, so it may run in another process than the sender.
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
    #: Uuid of the virtual machine of this host that sends; "" = the sender is the owner of the source address.
    server: str = ""

    def __post_init__(self) -> None:
        for name in ("source_port", "destination_port"):
            port = getattr(self, name)
            if not 0 < port < 2**16:
                raise InvalidInput(f"{name}: expected 1..65535, got {port}")


@dataclass(frozen=True, slots=True)
class LimitedFlow:
    """A flow and the rate it is limited to."""

    flow: Flow
    rate_bps: float


class EgressDriver(abc.ABC):
    """Limits flows to rates in bits per second; 0 holds a flow, `inf` does not limit it.  Thread-safe."""

    @abc.abstractmethod
    def open(self, flow: Flow, rate_bps: float) -> None:
        """Limit a new flow; if it is open, set its rate. Raises Conflict if the key belongs to another flow."""

    @abc.abstractmethod
    def set_rate(self, key: str, rate_bps: float) -> None:
        """Change the rate of an open flow. Raises NotFound if it is not open."""

    @abc.abstractmethod
    def close(self, key: str) -> None:
        """Forget a flow and lift its limit; ignored if it is not open."""

    @abc.abstractmethod
    def flows(self) -> tuple[LimitedFlow, ...]:
        """Return the flows that are limited now, as observed, for reconciliation."""

    def follow(self, taps: Mapping[tuple[str, str], str]) -> frozenset[str]:
        """Limit flows of virtual machines at their taps (devices by server and address); forget all other taps.

        Return the devices at which flows can be limited.
        """
        return frozenset()

    # Operations on many flows: a driver overrides these if it has a faster implementation.

    def open_all(self, limits: Iterable[LimitedFlow]) -> None:
        """Open each flow at its rate; see `open` for repeated calls."""
        for limit in limits:
            self.open(limit.flow, limit.rate_bps)

    def set_rates(self, rates_bps: Mapping[str, float]) -> None:
        """Change the rates of open flows, by key."""
        for key, rate_bps in rates_bps.items():
            self.set_rate(key, rate_bps)

    def close_all(self, keys: Iterable[str]) -> None:
        """Close these flows."""
        for key in keys:
            self.close(key)

    def reset(self) -> None:
        """Forget all flows and lift all limits, including those that an earlier process left on this host."""
        self.close_all([limited.flow.key for limited in self.flows()])


def check_rate(rate_bps: float) -> None:
    """Raise InvalidInput if the rate is NaN or negative."""
    if not rate_bps >= 0:
        raise InvalidInput(f"rate_bps: expected at least 0, got {rate_bps}")
