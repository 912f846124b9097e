"""The scheduler service: several of them answer requests, and share the shards among themselves."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fpga_pool.core.cluster.policies import EarliestHost
from fpga_pool.core.policy import BatchPolicy, GangPolicy, TaskPolicy
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.exceptions import QuotaExceeded, StorageFull
from fpga_pool.model.lifecycle.notifications import NOTIFIED, Notification, notifications
from fpga_pool.model.lifecycle.slot import LeaseBroken
from fpga_pool.model.messages.work import DesignRequest, WorkRequest
from fpga_pool.model.objects.pool import Lease, Shard
from fpga_pool.model.objects.quotas import Amounts, ProjectLimits, QuotaLimits
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.admission import check_quota
from fpga_pool.model.rules.shared.families import AnyFamily, PoolPolicies, new_families
from fpga_pool.model.transaction import Transaction
from fpga_pool.placement.client import PlacementClient
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError, Refusals
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.changes import Changes, Committed, Snapshots
from fpga_pool.services.scheduler.cloud.instances import Departures, Instances
from fpga_pool.services.scheduler.cloud.placement import loops as placement_loops
from fpga_pool.services.scheduler.cloud.tier_migrations import POLL_S as MOVES_S
from fpga_pool.services.scheduler.cloud.tier_migrations import MigrationLimits, TierMigrations
from fpga_pool.services.scheduler.dry_runs.turns import DryRuns
from fpga_pool.services.scheduler.enrolment import KeyRing
from fpga_pool.services.scheduler.heartbeats import HeartbeatIntake
from fpga_pool.services.scheduler.metrics import SchedulerEvents, SchedulerState
from fpga_pool.services.scheduler.outbox import Outbox
from fpga_pool.services.scheduler.ownership import RARER, OwnedShard, Ownership
from fpga_pool.services.scheduler.planner import (
    WITHDRAW_S,
    Calibrator,
    DesignCatalogue,
    Planner,
    prepare,
    quick,
    sparing,
)
from fpga_pool.services.scheduler.tickets import Tickets
from fpga_pool.services.scheduler.writer import Projects, ShardWriter
from fpga_pool.services.scheduler_settings import SchedulerSettings
from fpga_pool.store.purge import purge
from fpga_pool.store.quotas import own_limits, used
from fpga_pool.store.store import Store
from fpga_pool.store.transaction import SqlTransaction

if TYPE_CHECKING:  # openstacksdk takes a second to load
    from fpga_pool.drivers.nova_api import TenantServers

LOG = logging.getLogger(__name__)

StoredT = TypeVar("StoredT")

#: Time to load compiled loops from the cache on busy processors.  Compiling them takes longer.
PREPARING_S = 10.0
#: Interval of checks for database sessions whose client stalls while it holds locks.
STALLED_S = 2.0
#: Interval of purges of the database, and their number within a shorter retention.
PURGE_S, PURGES = 3600.0, 10


def purge_interval_s(retention_s: float) -> float:
    """Return the interval of purges for a retention, in seconds."""
    return min(PURGE_S, retention_s / PURGES)


class SchedulerService:
    """Answers requests for the whole pool, and plans, commands and reconciles the shards it owns.

    `start` and `stop` are called once each; the server of its endpoint is started before it.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        store: Store,
        catalogue: Catalogue,
        policies: Callable[[str], BatchPolicy],
        agents: AgentAPI,
        peers: SchedulerAPI,
        token_key: Ed25519PrivateKey,
        role_keys: Mapping[Role, Sequence[Ed25519PublicKey]],
        clock: SteadyClock,
        online: OnlineRule,
        gangs: GangPolicy,
        tasks: TaskPolicy,
        placement: PlacementClient | None = None,
        instruments: Instruments | None = None,
        publish: Callable[[Sequence[Notification]], object] | None = None,
        unified_limits: Callable[[str], ProjectLimits] | None = None,
        tier_migrations: "tuple[TenantServers, MigrationLimits] | None" = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.catalogue = catalogue
        self.token_key = token_key
        self.tickets = Tickets(token_key, settings.token_lifetime_s, clock)
        self.clock = clock
        self.refusals = Refusals()
        #: The keys of all processes that may call this scheduler.
        self.keys = KeyRing(store, {Role.SCHEDULER: [token_key.public_key()], **role_keys}, clock)
        self.instruments = instruments or Instruments()
        self._events = SchedulerEvents(self.instruments)
        self._publish = publish
        #: Returns the limits of a project from Keystone; None = the pool keeps the limits.
        self.unified_limits = unified_limits
        self.changes = Changes(self._committed)
        self.calibrator = Calibrator(store, catalogue, clock)
        self.heartbeat_intake = HeartbeatIntake(store, self.writer, settings.pool.shards, clock)
        self.ownership = Ownership(settings.name, settings.shard_timeout_s, store, clock, self._take_up)
        self.snapshots = Snapshots(store, clock)
        for reader in SchedulerState(store, self.snapshots, self.ownership, self.refusals, clock).readers():
            self.instruments.read(reader)
        #: The catalogue with the designs of tenants.
        self.designs = DesignCatalogue(catalogue, store)
        self.instances = Instances(store, self.writer, self.designs, settings.pool, clock, placement)
        #: None without Placement, which decides what an instance may keep.
        self.departures = None if placement is None else Departures(store, self.writer, placement, clock)
        self._placement = placement
        self.gangs = gangs
        self.policies = PoolPolicies(
            batches=sparing(policies, settings.planning_share),
            default_batch=settings.default_policy,
            online=online,
            gangs=gangs,
            tasks=quick(tasks),
            pipelines=EarliestHost(slowdown=lambda: self.calibrator.slowdown),
            slowdown=lambda: self.calibrator.slowdown,
        )
        self.dry_runs = DryRuns()
        self.agents = agents
        self._peers = peers
        #: None if servers are not migrated.
        self._tier_migrations = None
        if placement is not None and tier_migrations is not None:
            self._tier_migrations = TierMigrations(
                store, placement, tier_migrations[0], agents, gangs, tier_migrations[1], self._owns_first, clock
            )
        self._writers: dict[str, ShardWriter] = {}
        self._projects = Projects(store)
        self._admissions = ShardWriter(self._projects.admitting)
        self._loops: list[Loop] = []
        self._preparing: Thread | None = None

    def start(self, *, prepares: bool = True) -> None:
        """Join the other schedulers, and take shards without a live owner, now or a moment later.

        With `prepares`, the compiled loops of the default policy are loaded now, and not when a batch first needs them.
        """
        settings = self.settings
        if prepares and not self.policies.online.is_online(settings.default_policy):
            self._preparing = prepare(self.policies.batches(settings.default_policy))
        self.store.ensure_shards(settings.pool.shards.names(), self.clock())
        self.ownership.step()
        self._loops = [
            Loop("own", self.ownership.step, self._owning_interval_s),
            Loop("refit", self.calibrator.refit, settings.refit_interval_s, share=0.005),  # under load every run is new
            Loop("hear", self._note_alive, self._hearing_interval_s),
            Loop("listen", self._listen, settings.interval_s),
            *([Loop("purge", self._purge, purge_interval_s(settings.retention_s))] if settings.retention_s else []),
            *([Loop("end-stalled", self._end_stalled, STALLED_S)] if self.store.ends_stalled_sessions else []),
            *([] if self.departures is None else [self.departures.loop]),
            *([Loop("tiers", self._tier_migrations.step, MOVES_S)] if self._tier_migrations is not None else []),
        ]
        for loop in self._loops:
            loop.start()

    def _owning_interval_s(self) -> float:
        interval_s = min(self.settings.interval_s, self.settings.shard_timeout_s / 5)
        return RARER * interval_s if len(self.ownership.living()) == 1 else interval_s

    def _hearing_interval_s(self) -> float:
        return RARER * self.settings.interval_s if self.ownership.rests() else self.settings.interval_s

    def wait_prepared(self) -> None:
        """Wait until the default policy has loaded its compiled loops, at most `PREPARING_S`."""
        if self._preparing is not None:
            self._preparing.join(PREPARING_S)

    def pause(self) -> None:
        """Stop planning and sending commands, but keep listening, so that agents can send their reports and stop."""
        for loop in reversed(self._loops):
            loop.stop()
        self._loops = []
        self.ownership.pause()

    def stop(self) -> None:
        """Let running steps end; committed work stays for the next owner, which can take over immediately."""
        self.pause()
        self.ownership.leave()

    def limits_of(self, tx: SqlTransaction, project_id: str, unified: ProjectLimits | None) -> ProjectLimits:
        """Return the limits of a project; `unified` is what `self.unified` returned before the transaction."""
        return unified or self.limits(own_limits(tx.connection, project_id))

    def admit(
        self, kind: type, request: WorkRequest | DesignRequest, create: Callable[[SqlTransaction], StoredT]
    ) -> tuple[StoredT, ProjectLimits]:
        """Return what `create` stores for a request, in one transaction with others, and the limits of its project.

        Raises QuotaExceeded if the project would exceed its limits; requests of one project are admitted one by one.
        """
        unified = self.unified(request.project_id)

        def admitted(writing: Transaction) -> tuple[StoredT, ProjectLimits]:
            tx, projects, project_id = cast("SqlTransaction", writing), self._projects, request.project_id
            own = projects.lock_limits(project_id)
            limits = unified or self.limits(own)
            in_use = projects.used(project_id, request.amounts, limits.in_force)
            self._check_quota(tx, kind, request, limits, in_use)
            made = create(tx)
            projects.admitted(project_id, request.amounts)
            return made, limits

        return self._admissions.run(admitted)

    def limits(self, own: QuotaLimits) -> ProjectLimits:
        """Return the limits of a project for which the pool stores `own`, with the default limits for all others."""
        return ProjectLimits(own, self.settings.quotas)

    def unified(self, project_id: str) -> ProjectLimits | None:
        """Return the limits of a project from Keystone, which may be slow; None if the pool keeps the limits."""
        return None if self.unified_limits is None else self.unified_limits(project_id)

    def check_quota_now(
        self, tx: SqlTransaction, kind: type, request: WorkRequest, unified: ProjectLimits | None
    ) -> None:
        """Raise QuotaExceeded if the project of a request would exceed its limits if the request was admitted now."""
        in_use = used(tx.connection, request.project_id, request.amounts)
        self._check_quota(tx, kind, request, self.limits_of(tx, request.project_id, unified), in_use)

    def _check_quota(
        self, tx: SqlTransaction, kind: type, request: WorkRequest | DesignRequest, limits: ProjectLimits, used: Amounts
    ) -> None:
        try:
            check_quota(request.project_id, limits.in_force, used, request.amounts)
        except QuotaExceeded:
            tx.refuse_stored(kind, [request.uuid])  # a repeated request is reported as a duplicate
            raise

    def writer(self, shard: str) -> ShardWriter:
        """Return the writer that executes requests on a shard on behalf of its owner."""
        if (known := self._writers.get(shard)) is not None:
            return known
        begin = self.changes.noted(lambda: self.store.transaction(shard))
        return self._writers.setdefault(shard, ShardWriter(begin))

    def withdraw_designs(self) -> None:
        """Withdraw designs that are not approved from all shards; if this fails, a loop of each shard does it later."""
        for shard in self.settings.pool.shards.names():
            self._withdraw(shard)

    def _withdraw(self, shard: str) -> bool:
        if self.designs.withdraw(shard, self.writer(shard), self.clock):
            self.work_arrived()
        return False

    def last_committed(self, batch_uuid: str) -> Committed | None:
        """Return the state of a batch if it is known without reading; None if another scheduler may have changed it."""
        return self.changes.last(batch_uuid) if len(self.ownership.living()) == 1 else None

    def work_arrived(self, *families: str) -> None:
        """Trigger the planning of pending work of these families, here and by the other owners.

        Without names, trigger the planning of all families, and the outbox.
        """
        if not self.ownership.wake(families):
            try:
                self._peers.wake()
            except MessagingError as error:
                LOG.debug("the other schedulers were not notified, they will check soon: %s", error)

    def _committed(self, tx: SqlTransaction) -> None:
        self._events.committed(tx)
        for lease, entry in tx.events(Lease):
            if entry.event == LeaseBroken.__name__:
                LOG.warning("instance %s cannot use slot %s: %s", lease.holder, lease.slot, entry.reason)
        self.notify(tx)

    def notify(self, tx: SqlTransaction) -> None:
        """Send notifications of the changes that a transaction has committed, if notifications are enabled."""
        self.publish(one for cls in NOTIFIED for one in notifications(cls, tx.events(cls)))

    def publish(self, found: Iterable[Notification]) -> None:
        """Send notifications, if they are enabled."""
        if self._publish is not None and (sent := list(found)):
            self._publish(sent)

    def _take_up(self, shard: Shard) -> OwnedShard:
        """Start to plan and command an acquired shard."""
        settings = self.settings
        transactions = self.changes.noted(lambda: self.store.transaction(shard.name, shard.owner, shard.epoch))

        def new_planner(family: AnyFamily, dispatch: Callable[[], None]) -> Planner:
            cycle = Cycle(
                family,
                reading=lambda: self.designs.reading_for(family, shard.name),
                transactions=transactions,
                dispatch=dispatch,
                clock=self.clock,
                timer=time.monotonic,
                rng=np.random.default_rng(settings.seed),
            )
            return Planner(cycle, self._events.cycle)

        outbox = Outbox(self.store, shard, self.agents, self.clock)
        owned = OwnedShard(
            shard,
            self.store,
            new_families(self.catalogue, settings.pool, self.policies),
            new_planner,
            outbox,
            settings.pool,
            settings.interval_s,
            settings.online_interval_s,
            self.clock,
            transactions,
            [
                Loop(f"designs-{shard.name}", lambda: self._withdraw(shard.name), WITHDRAW_S),
                *placement_loops(
                    *(self.store, shard.name, self._placement, self.writer),
                    *(self.catalogue, settings.pool, self.clock),
                ),
            ],
        )
        owned.start()
        return owned

    def heartbeats_due_s(self) -> tuple[float, float]:
        """Return in how many seconds a host has to send a heartbeat or life sign, and in how many a heartbeat."""
        return self.heartbeat_intake.due_s(self.settings.pool.host_timeout_s)

    @contextmanager
    def hearing_hosts(self) -> Iterator[None]:
        """Record signs of life of hosts; while there is no space to store them, no silent host is considered lost."""
        try:
            yield
        except StorageFull:
            self.ownership.deaf()
            raise

    def _owns_first(self) -> bool:
        """Return whether this scheduler owns the first shard, and so does the work that only one scheduler does."""
        with self.store.reading() as tx:
            first = min(tx.generations(), default="")
        return first in self.ownership.shards()

    def _purge(self) -> bool:
        """Remove objects that ended long ago, unless another scheduler does it."""
        if self._owns_first():
            removed = purge(self.store, self.clock() - self.settings.retention_s)
            if said := ", ".join(f"{count} {kind}" for kind, count in removed.items() if count):
                LOG.info("removed from the database: %s", said)
        return False

    def _end_stalled(self) -> bool:
        if ended := self.store.end_stalled_sessions():
            LOG.warning("ended sessions of the database whose client stalled within a transaction: %s", ended)
        return False

    def _note_alive(self) -> bool:
        with self.hearing_hosts():
            self.heartbeat_intake.step()
        return False

    def _listen(self) -> bool:
        """Call this scheduler as agents do, if none has for a while; while that fails, no silent host is lost."""
        if self.heartbeat_intake.misses_life_signs(self.settings.pool.host_timeout_s, self._hearing_interval_s()):
            self.ownership.deaf()
        due_s, _ = self.heartbeats_due_s()
        if self.heartbeat_intake.heard_s() < due_s:
            return False
        try:
            self._peers.describe(self.settings.name)
        except MessagingError as error:
            LOG.warning("this scheduler cannot be reached through the message bus: %s", error)
            self.ownership.deaf()
        return False
