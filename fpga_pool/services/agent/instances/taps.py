"""The taps of a host's servers: found by what the hypervisor says of them, followed by the egress driver, reported."""

import logging
from collections.abc import Callable, Collection, Sequence

from fpga_pool.drivers.egress.base import EgressDriver
from fpga_pool.drivers.guests.domain import Domain
from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.model.messages.agents import MOST_SERVERS, ObservedServer
from fpga_pool.services.agent.instances.supervisor import LOOK_S
from fpga_pool.services.loop import Loop

LOG = logging.getLogger(__name__)


class Taps:
    """Looks at the machines that run, when one has changed and every few seconds: ports come and go without events.

    Its thread may wait for the hypervisor as long as a start waits for slots; what was seen last holds meanwhile.
    """

    def __init__(self, running: Callable[[], Sequence[Domain]], egress: EgressDriver | None, egress_bps: float) -> None:
        self._running = running
        self._egress = egress
        #: Of a server whose ports have no limit: that of its host, bits per second.
        self._egress_bps = egress_bps
        self._looking = Loop("taps", self._look, LOOK_S)
        self.start, self.stop, self.wake = self._looking.start, self._looking.stop, self._looking.wake
        self._observed: tuple[ObservedServer, ...] | None = None

    def observed(self) -> tuple[ObservedServer, ...] | None:
        """Return the servers as they were last seen; None before the first look."""
        return self._observed

    def _look(self) -> bool:
        try:
            self._note([domain for domain in self._running() if domain.taps and domain.project_id])
        except (FpgaPoolError, OSError) as error:
            LOG.warning("taps: %s", error)
        return False

    def _note(self, domains: Sequence[Domain]) -> None:
        taps = {
            (domain.instance, address): tap.device
            for domain in domains
            for tap in domain.taps
            for address in tap.addresses
        }
        held = self._egress.follow(taps) if self._egress is not None else frozenset[str]()
        if len(domains) > MOST_SERVERS:
            LOG.warning("taps: of %d servers %d are reported", len(domains), MOST_SERVERS)
        found = sorted(domains, key=lambda domain: domain.instance)[:MOST_SERVERS]
        self._observed = tuple(filter(None, (self._server(domain, held) for domain in found)))

    def _server(self, domain: Domain, held: Collection[str]) -> ObservedServer | None:
        """Return what is reported of a server; None where it is not one of Nova's by its names."""
        plain = {
            "uuid": domain.instance,
            "project_id": domain.project_id,
            "egress_bps": min(self._egress_bps, sum(tap.limit_bps for tap in domain.taps)),
            "held": all(tap.device in held for tap in domain.taps),
        }
        try:
            server: ObservedServer = read(ObservedServer, plain, f"domain {domain.name}")
        except InvalidInput as error:
            LOG.debug("taps: %s", error)
            return None
        return server
