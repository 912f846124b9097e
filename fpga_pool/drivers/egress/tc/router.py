"""All devices of a host as one egress driver: a flow is limited on the device that its packets pass."""

import ipaddress
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

from fpga_pool.drivers.egress.base import EgressDriver, Flow, LimitedFlow
from fpga_pool.drivers.egress.tc.driver import IngressAttachment, TcDriver, detach_all_taps
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, InvalidInput, NotFound

LOG = logging.getLogger(__name__)


class TcEgress(EgressDriver):
    """Selects the driver of each flow: from `drivers`, by the most specific network that contains the source address.

    A network is, for example, "192.0.2.0/24" for the NIC. A flow of a virtual machine is limited at the tap with its
    source address, if `follow` has announced that tap.
    """

    def __init__(self, drivers: Mapping[str, EgressDriver]) -> None:
        try:
            networks = {ipaddress.ip_network(network): driver for network, driver in drivers.items()}
        except ValueError as error:
            raise InvalidInput(f"network of a device: {error}") from error
        self._networks = sorted(networks.items(), key=lambda item: item[0].prefixlen, reverse=True)
        self._driver_of: dict[str, EgressDriver] = {}
        #: Device by virtual machine and address (None = not known yet), and the drivers of devices with flows.
        self._taps: dict[tuple[str, str], str] | None = None
        self._at_taps: dict[str, EgressDriver] = {}
        self._refused: dict[str, str] = {}
        self._lock = threading.Lock()

    def open(self, flow: Flow, rate_bps: float) -> None:
        self.open_all([LimitedFlow(flow, rate_bps)])

    def open_all(self, limits: Iterable[LimitedFlow]) -> None:
        # If a device refuses, the flows of the devices before it are already open.
        with self._lock:
            parts: defaultdict[EgressDriver, list[LimitedFlow]] = defaultdict(list)
            for limit in limits:
                driver = self._serving(limit.flow)
                if self._driver_of.get(limit.flow.key, driver) is not driver:
                    raise Conflict(f"flow {limit.flow.key}: already open with other addresses")
                parts[driver].append(limit)
            for driver, part in parts.items():
                driver.open_all(part)
                self._driver_of.update((limit.flow.key, driver) for limit in part)

    def set_rate(self, key: str, rate_bps: float) -> None:
        self.set_rates({key: rate_bps})

    def set_rates(self, rates_bps: Mapping[str, float]) -> None:
        with self._lock:
            parts: defaultdict[EgressDriver, dict[str, float]] = defaultdict(dict)
            for key, rate_bps in rates_bps.items():
                if key not in self._driver_of:
                    raise NotFound(f"flow {key}: not open")
                parts[self._driver_of[key]][key] = rate_bps
            for driver, part in parts.items():
                driver.set_rates(part)

    def close(self, key: str) -> None:
        self.close_all([key])

    def close_all(self, keys: Iterable[str]) -> None:
        with self._lock:
            parts: defaultdict[EgressDriver, list[str]] = defaultdict(list)
            for key in keys:
                if key in self._driver_of:
                    parts[self._driver_of[key]].append(key)
            for driver, part in parts.items():
                driver.close_all(part)
                for key in part:
                    self._driver_of.pop(key, None)

    def follow(self, taps: Mapping[tuple[str, str], str]) -> frozenset[str]:
        with self._lock:
            self._taps = dict(taps)
            devices = frozenset(taps.values())
            for device in self._at_taps.keys() - devices:
                ended = self._at_taps[device]
                ended.reset()
                del self._at_taps[device]
                self._driver_of = {key: driver for key, driver in self._driver_of.items() if driver is not ended}
            refused = self._refused
            self._refused = {device: why for device in devices if (why := _refusal(device))}
            for device in self._refused.keys() - refused.keys():
                LOG.warning("cannot limit flows of servers: %s", self._refused[device])
            return devices - self._refused.keys()

    def flows(self) -> tuple[LimitedFlow, ...]:
        return tuple(limited for driver in self._distinct() for limited in driver.flows())

    def reset(self) -> None:
        with self._lock:
            for driver in self._distinct():
                driver.reset()
            detach_all_taps()
            self._at_taps.clear()
            self._driver_of.clear()

    def _distinct(self) -> list[EgressDriver]:
        return list(dict.fromkeys([*(driver for _, driver in self._networks), *self._at_taps.values()]))

    def _serving(self, flow: Flow) -> EgressDriver:
        try:
            address = ipaddress.ip_address(flow.source_address)
        except ValueError:
            raise InvalidInput(f"source_address: expected an address, got {flow.source_address!r}") from None
        if flow.server:
            return self._at_tap(flow.server, str(address))
        for network, driver in self._networks:
            if address in network:
                return driver
        raise InvalidInput(f"flow {flow.key}: no device is configured for source {flow.source_address}")

    def _at_tap(self, server: str, address: str) -> EgressDriver:
        if self._taps is None:
            raise NotFound("the taps of this host are not known yet")
        device = self._taps.get((server, address))
        if device is None:
            raise InvalidInput(f"server {server}: no tap of it on this host has address {address}")
        return self._at_taps.setdefault(device, TcDriver(device, "ingress"))


def _refusal(device: str) -> str:
    """Return why flows cannot be limited at a tap; "" = they can."""
    try:
        IngressAttachment(device).check()
    except (FpgaPoolError, OSError) as error:
        return str(error)
    return ""
