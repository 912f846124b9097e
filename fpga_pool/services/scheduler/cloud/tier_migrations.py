"""Live migrations of servers of tier `auto` to hosts with a free foreground, by Nova.

Free pCPUs are read from Placement, the usage of servers from their agents, and recent migrations from Nova.  So there
is no state to remember, and a scheduler that takes over can continue.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fpga_pool.core.gangs.servers import WaitingServer, migrations, remaining_s, share_lost
from fpga_pool.core.policy import GangPolicy
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.flavor import TIER_CLASSES, TIERS_TRAIT, GuestTier, Tier, tiers_provider_uuid
from fpga_pool.placement.client import PlacementClient
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store

if TYPE_CHECKING:  # openstacksdk takes a second to load
    from fpga_pool.drivers.nova_api import TenantServers

LOG = logging.getLogger(__name__)

#: Interval of checks of servers and hosts.
POLL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationLimits:
    """Limits and costs of migrations of servers."""

    #: Concurrent live migrations in Nova, including those that others have requested.
    at_once: int
    #: How long a server stays where it was migrated to, or where it could not be migrated from.
    pause_s: float
    #: Duration of a migration: a fixed time, plus the time to transfer the memory at this rate.
    fixed_s: float
    bps: float

    def migration_s(self, memory_bytes: int) -> float:
        """Return the expected duration of the live migration of a server."""
        return self.fixed_s + 8 * memory_bytes / self.bps


class Agents(Protocol):
    """Source of the guests of a host: `rpc.agent_api.AgentAPI`."""

    def tiers(self, host: str) -> list[GuestTier]:
        """Return the guests of a host that are in a tier."""


class TierMigrations:
    """Finds servers that are worth a migration, and requests it from Nova.  Not thread-safe."""

    def __init__(
        self,
        store: Store,
        placement: PlacementClient,
        nova: "TenantServers",
        agents: Agents,
        policy: GangPolicy,
        limits: MigrationLimits,
        is_mine: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """Create it; `is_mine` returns whether this scheduler is the one that migrates servers."""
        self._store = store
        self._placement = placement
        self._nova = nova
        self._agents = agents
        self._policy = policy
        self._limits = limits
        self._is_mine = is_mine
        self._clock = clock
        #: Servers whose migration Nova refused immediately, which it does not record, and until when they wait.
        self._refused: dict[str, float] = {}

    def step(self) -> bool:
        """Request the migrations that are worthwhile now."""
        now_s = self._clock()
        self._refused = {server: until_s for server, until_s in self._refused.items() if until_s > now_s}
        if not self._is_mine():
            return False
        hosts = self._hosts()
        free = self._free(hosts) if hosts else {}
        if not free:
            return False
        lately = self._nova.migrations(now_s - self._limits.pause_s)
        room = self._limits.at_once - sum(not migration.is_over for migration in lately)
        if room > 0:
            resting = {migration.server for migration in lately} | self._refused.keys()
            waiting = self._waiting(hosts, free, resting, now_s)
            found = migrations(waiting, free, self._policy, now_s, np.random.default_rng(0))
            for server, host in found[:room]:
                self._migrate(server, host)
        return False

    def _hosts(self) -> Mapping[str, str]:
        """Return the live hosts that have tiers, each with the uuid of its resource provider for tiers."""
        having = {provider.uuid for provider in self._placement.owned(TIERS_TRAIT)}
        with self._store.reading() as tx:
            known = {host.name: tiers_provider_uuid(host.node or host.name) for host in tx.hosts() if host.alive}
        return {host: provider for host, provider in known.items() if provider in having}

    def _free(self, hosts: Mapping[str, str]) -> dict[str, int]:
        """Return the pCPUs of each host that are free in both tiers.

        A server that Nova migrates arrives in the background, and then its agent moves it to the foreground.
        """
        free = self._placement.free(TIER_CLASSES[Tier.FOREGROUND], TIER_CLASSES[Tier.BACKGROUND])
        return {host: free[provider] for host, provider in hosts.items() if provider in free}

    def _waiting(
        self, hosts: Mapping[str, str], free: Mapping[str, int], resting: set[str], now_s: float
    ) -> list[WaitingServer]:
        """Return the servers that are held back by guests in the foreground, with their data from Nova."""
        found = []
        for host in hosts:
            try:
                guests = self._agents.tiers(host)
            except (MessagingError, FpgaPoolError) as error:
                LOG.debug("host %s: its servers are left out of migrations: %s", host, error)
                continue
            for server in held_back(guests, free.get(host, 0)):
                if server.name not in resting and (known := self._weighed(server, host, now_s)) is not None:
                    found.append(known)
        return found

    def _weighed(self, server: WaitingServer, host: str, now_s: float) -> WaitingServer | None:
        """Return a server with its data from Nova; None if it cannot be migrated now."""
        try:
            about = self._nova.show(server.name)
        except FpgaPoolError as error:
            LOG.debug("server %s: left out of migrations: %s", server.name, error)
            return None
        if not about.is_idle or about.host != host:
            return None
        weighed = replace(
            server,
            since_s=about.launched_at,
            remaining_s=remaining_s(now_s, about.launched_at, about.runtime_s),
            migration_s=self._limits.migration_s(about.memory_bytes),
        )
        LOG.debug(
            "server %s: a migration takes %.0f s, and gains %.0f %% of the %.0f s that it is expected to run",
            server.name,
            weighed.migration_s,
            100 * weighed.lost,
            weighed.remaining_s,
        )
        return weighed

    def _migrate(self, server: WaitingServer, host: str) -> None:
        try:
            self._nova.migrate(server.name, host)
        except FpgaPoolError as error:
            self._refused[server.name] = self._clock() + self._limits.pause_s
            LOG.warning("server %s: Nova does not migrate it to host %s: %s", server.name, host, error)
            return
        LOG.info(
            "server %s: is live-migrated to the foreground of host %s; expected to end %.0f s sooner",
            server.name,
            host,
            server.gain_s,
        )


def held_back(guests: Sequence[GuestTier], free: int) -> list[WaitingServer]:
    """Return the guests of a host that may be migrated and are held back by guests in the foreground.

    Guests for which the host itself has room are left to its agent. Fields that only Nova knows are 0.
    """
    in_front = {
        pcpu: usage
        for guest in guests
        if guest.tier is Tier.FOREGROUND
        for pcpu, usage in zip(guest.pcpus, guest.usage, strict=False)
    }
    found = []
    for guest in guests:
        movable = guest.may_migrate and guest.wanted is Tier.AUTO and guest.tier is Tier.BACKGROUND
        if not movable or len(guest.pcpus) <= free or len(guest.pcpu_usage) != len(guest.pcpus):
            continue
        lost = share_lost(guest.pcpu_usage, [in_front.get(pcpu, 0.0) for pcpu in guest.pcpus])
        if lost > 0:
            found.append(
                WaitingServer(
                    name=guest.instance,
                    vcpus=len(guest.pcpus),
                    since_s=0.0,
                    lost=lost,
                    remaining_s=0.0,
                    migration_s=0.0,
                )
            )
    return found
