"""The embedded pool: API, scheduler and agents with simulated slots in one process, without root or other services.

Messages use ``inprocess://``, and all durable state is in one state directory, so a pool that was killed continues
where it stopped.  The components are those of the separate processes; only their assembly here is different.
"""

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oslo_config import cfg

from fpga_pool.conf.agent import data_tls, peer_tls
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.conf.policies import load_policy
from fpga_pool.drivers.slots.base import configured_links
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary, load_or_create_signing_key
from fpga_pool.drivers.slots.cpu import CpuWorkers
from fpga_pool.drivers.slots.faults import Faults
from fpga_pool.drivers.slots.simulated import SimulatedSlots, configured_board, simulated_serials
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.metrics.table import NOTIFICATIONS
from fpga_pool.model.catalogue import Board
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.links import CardLinks, read_enclosures
from fpga_pool.placement.client import open_placement
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.notifier import publisher
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import AGENT_TOPIC, SCHEDULER_TOPIC, Refusals, server, transport
from fpga_pool.services.agent.endpoint import AgentEndpoint, LibraryEndpoint
from fpga_pool.services.agent.service import AgentService
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.configured import (
    agent_gate,
    agent_identity,
    agent_settings,
    instances,
    runner,
    scheduler_settings,
)
from fpga_pool.services.loop import exclusive
from fpga_pool.services.scheduler.endpoint import SchedulerEndpoint
from fpga_pool.services.scheduler.enrolment import approve
from fpga_pool.services.scheduler.planner import online_rule
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: Name of the only scheduler of the pool.
NAME = "standalone"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The key pairs of the pool, created at its first start."""

    bitstreams: Any
    tokens: Any
    api: Any


class StandalonePool:
    """One embedded pool on one state directory.  `start` and `stop` are called once each."""

    def __init__(self, conf: cfg.ConfigOpts, instruments: Instruments | None = None) -> None:
        self._conf = conf
        self._instruments = instruments or Instruments()
        self._publisher = publisher(conf, NAME, partial(self._instruments.count, NOTIFICATIONS))
        if not conf.standalone.state_dir:
            raise InvalidInput("[standalone] state_dir: expected a directory, found ''")
        self._state_dir = Path(conf.standalone.state_dir)
        try:
            self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise InvalidInput(f"[standalone] state_dir: {self._state_dir}: {error.strerror}") from None
        self._lock = exclusive(
            self._state_dir / "lock",
            f"another pool runs on {self._state_dir}; use another --state-dir for this one",
        )
        self.catalogue = load_catalogue(catalogue_path(conf))
        self._clock = SteadyClock()
        self._transport = transport(cfg.CONF, "inprocess://")
        keys = _Keys(
            load_or_create_signing_key(self._state_dir / "keys" / "bitstreams.pem"),
            load_or_create_signing_key(self._state_dir / "keys" / "tokens.pem"),
            load_or_create_signing_key(self._state_dir / "keys" / "api.pem"),
        )
        #: The scheduler's interface for the API.
        self.scheduler_api = SchedulerAPI(self._transport, Identity(Role.API, NAME, keys.api))
        identity = Identity(Role.SCHEDULER, NAME, keys.tokens)
        self._store = Store(f"sqlite:///{self._state_dir / 'pool.sqlite'}")
        self._store.migrate()
        self.scheduler = SchedulerService(
            scheduler_settings(conf, NAME),
            self._store,
            self.catalogue,
            lambda name: load_policy("batch", name, conf),
            AgentAPI(self._transport, identity),
            SchedulerAPI(self._transport, identity),
            keys.tokens,
            {Role.API: [keys.api.public_key()]},
            self._clock,
            online_rule(conf),
            load_policy("gang", conf.scheduler.gang_policy, conf),
            load_policy("task", conf.scheduler.task_policy, conf),
            open_placement(conf),
            self._instruments,
            None if self._publisher is None else self._publisher.publish,
        )
        self._agent_gate = agent_gate([keys.tokens.public_key()])
        #: By host, the scheduler's interface for its agent.
        self.agent_apis: dict[str, SchedulerAPI] = {}
        self.agents = self._make_agents(keys)
        #: Virtual machines of the first host; None without a guest driver.
        self._guests = instances(conf, self.agents[0], self.agent_apis[self.agents[0].settings.host], None)
        self._servers: list[Any] = []

    def start(self) -> None:
        """Start the scheduler first, so that the first heartbeats of the agents reach it, then the agents."""
        gate = Gate(self.scheduler.keys, SCHEDULER_METHODS)
        self._serve(SCHEDULER_TOPIC, NAME, [SchedulerEndpoint(self.scheduler)], gate, self.scheduler.refusals)
        if self._publisher is not None:
            self._publisher.start()
        self.scheduler.start(prepares=False)  # the compiled loops would be half of the memory of this process
        for agent in self.agents:
            endpoints = [AgentEndpoint(agent), self._library]
            self._serve(AGENT_TOPIC, agent.settings.host, endpoints, self._agent_gate, agent.refusals)
            agent.start()
            agent.heartbeats.send()  # even if the first heartbeat failed, the pool knows the host now
        if self._guests is not None:
            self._guests.start()

    def stop(self) -> None:
        """Stop gracefully: running jobs complete, their reports are accepted, and the database is closed."""
        _attempt_all([self._guests.stop] if self._guests is not None else [])
        _attempt_all([self.scheduler.pause])
        _attempt_all([agent.stop for agent in self.agents])
        for one in self._servers:
            _attempt_all([one.stop, one.wait])
        _attempt_all([self.scheduler.stop])
        _attempt_all([self._publisher.stop] if self._publisher is not None else [])
        _attempt_all([self._store.close, self._lock.close])

    def _serve(self, topic: str, name: str, endpoints: Sequence[object], gate: Gate, refusals: Refusals) -> None:
        one = server(self._transport, topic, name, endpoints, gate, refusals)
        one.start()
        self._servers.append(one)

    def _make_agents(self, keys: _Keys) -> list[AgentService]:
        conf = self._conf
        library = BitstreamLibrary(self._state_dir / "bitstreams")
        board = configured_board(conf, self.catalogue)
        library.fill(self.catalogue, board, keys.bitstreams)
        self._library = LibraryEndpoint(library, self.catalogue, keys.bitstreams.public_key())
        ssl_context = data_tls(conf)
        responders = [f"node-{number}" for number in range(1, conf.standalone.hosts + 1)]
        requesters = [f"requester-{number}" for number in range(1, conf.standalone.requesters + 1)]
        return [
            self._make_agent(number, host, board, keys, library, ssl_context, responds=host in responders)
            for number, host in enumerate(responders + requesters, start=1)
        ]

    def _make_agent(
        self,
        number: int,
        host: str,
        board: Board,
        keys: _Keys,
        library: BitstreamLibrary,
        ssl_context: ssl.SSLContext | None,
        *,
        responds: bool,
    ) -> AgentService:
        conf = self._conf
        processors = conf.standalone.gang_processors if responds else 0
        settings = _agent_settings(conf, self._state_dir, host, tuple(range(processors)))
        cards = conf.driver_simulated.cards if responds else 0
        slots = SimulatedSlots(
            self.catalogue,
            board.name,
            cards,
            keys.bitstreams.public_key(),
            _faults(conf, number),
            links=_links(conf, cards),
            neighbour_cost=conf.driver_simulated.neighbour_cost,
        )
        return AgentService(
            settings,
            slots,
            library,
            self._enrolled(settings),
            [keys.tokens.public_key()],
            self._clock,
            ssl_context,
            cpu=CpuWorkers.from_conf(conf, self.catalogue) if responds else None,
            runner=runner(conf, settings, self._clock),
            instruments=self._instruments,
            peer_tls=peer_tls(conf),
        )

    def _enrolled(self, settings: AgentSettings) -> SchedulerAPI:
        """Enroll an agent of this pool without an operator; return the scheduler's interface for it."""
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity = agent_identity(settings)
        approve(self._store, settings.host, identity.public_text, self._clock())
        made = self.agent_apis[settings.host] = SchedulerAPI(self._transport, identity)
        return made


def catalogue_path(conf: cfg.ConfigOpts) -> Path:
    """Return the configured catalogue file, or the installed one."""
    return Path(conf.standalone.catalogue) if conf.standalone.catalogue else installed_catalogue()


def _agent_settings(
    conf: cfg.ConfigOpts, state_dir: Path, host: str, gang_processors: tuple[int, ...]
) -> AgentSettings:
    return agent_settings(
        conf,
        host=host,
        state_dir=state_dir / "agents" / host,
        egress_bps=conf.standalone.egress_mbps * 1e6,
        ingress_bps=conf.standalone.ingress_mbps * 1e6,
        gang_processors=gang_processors,
    )


def _links(conf: cfg.ConfigOpts, cards: int) -> Mapping[str, CardLinks]:
    """Return the links of a host's cards: as configured, or all cards in one ring."""
    serials = simulated_serials(cards)
    if cards and conf.agent.enclosure:
        return configured_links(conf, serials)
    ring = [f"box ring {','.join(serials)}"] if cards > 1 else []
    return read_enclosures(ring, conf.agent.slot_links, serials)


def _faults(conf: cfg.ConfigOpts, number: int) -> Faults:
    group = conf.driver_simulated
    return Faults(
        load_fails=group.load_fails,
        job_hangs=group.job_hangs,
        card_disappears=group.card_disappears,
        card_returns_after_s=group.card_returns_after_s,
        seed=1000 * group.fault_seed + number,
    )


def _attempt_all(steps: list[Callable[[], object]]) -> None:
    """Run every step, even if others fail."""
    for step in steps:
        try:
            step()
        except Exception:
            LOG.exception("a component of the pool did not stop cleanly")
