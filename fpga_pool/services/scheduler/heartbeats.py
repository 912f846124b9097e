"""Intake of the agents' heartbeats, by any scheduler.

A heartbeat that says the same as the one before costs no transaction: that the host lives is noted for all hosts
together.  As long as its shard changes, every one is compared with the database in full now and then, so that nothing
stays different for long.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from fpga_pool.model.exceptions import FpgaPoolError, NotEnrolled, NotFound
from fpga_pool.model.messages.agents import Heartbeat, Report
from fpga_pool.model.objects.hosts import require_known_place
from fpga_pool.model.objects.pool import Shard
from fpga_pool.model.rules.shared.reconcile import Repair, apply_heartbeat, require_later
from fpga_pool.model.rules.shared.reports import apply_reports, require_agent
from fpga_pool.model.rules.shared.sharding import ShardRule
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.services.clock import Clock
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.store import LastBeat, Store, confirm_place
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)

#: One in this many heartbeats of a host is compared in full, even if it contains nothing new,
FULL_EVERY = 10
#: but those of many hosts one after the other, at this distance in seconds, as far as none waits for this many
#: heartbeats: what comes from a busy database anyway would take the threads of all other calls.
FULL_APART_S, FULL_AT_LATEST = 0.05, 100


@dataclass(slots=True)
class _Known:
    """The last heartbeat of a host, without what changes in every one, and how many said the same since."""

    content: Heartbeat
    beat: int
    #: With which generation of which shard it was compared.
    shard: str
    generation: int
    repeats: int


class HeartbeatIntake:
    """Heartbeats and reports on their way into the database; threads may share it."""

    def __init__(self, store: Store, writer: Callable[[str], ShardWriter], rule: ShardRule, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._rule = rule
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        #: Hosts whose life, flows or counters were not noted yet, and their last heartbeats.
        self._alive: dict[str, LastBeat] = {}
        self._shards: dict[str, str] = {}
        #: Those of the shards, as they were a moment ago.
        self._generations: Mapping[str, int] = {}
        #: Hosts whose enrolment has no place yet: an operator has approved their keys again.
        self._unconfirmed: set[str] = set()
        #: When a host was compared for that last, and which one is being compared.
        self._compared_s, self._comparing = 0.0, ""

    def claim(self, host: str, agent_id: str) -> None:
        """Raise HostTaken unless a heartbeat of this agent would be accepted."""
        with self._store.reading() as tx:
            known = next((known for known in tx.hosts() if known.name == host), None)
        if known is not None and known.alive:
            require_agent(known, agent_id)

    def heartbeat(self, heard: Heartbeat) -> list[Repair]:
        """Take in the observed state of a host; return what was reconciled.

        LateMessage: a later one of the same agent was taken in before.
        """
        content = changed(heard, beat=0, at=0.0, flows=(), counters=None)
        if self._says_nothing_new(heard, content):
            return []
        try:
            writer = self._writer(self._shard_of(heard.host, heard.availability_zone))
            repairs, found = writer.run(lambda tx: self._apply(tx, heard))
        except FpgaPoolError:
            with self._lock:
                self._known.pop(heard.host, None)
            raise
        finally:
            with self._lock:
                if self._comparing == heard.host:
                    self._comparing = ""
        with self._lock:
            self._note(heard)
            # Where something was reconciled the next one is compared in full as well.
            self._known[heard.host] = _Known(
                content, heard.beat, found.name, found.pool_generation, FULL_EVERY if repairs else 0
            )
        return repairs

    def report(self, host: str, agent_id: str, numbered: list[tuple[int, Report]]) -> list[str]:
        """Take in what happened on a host; return why what is void is void."""
        shard = self._shard_of(host)
        return self._writer(shard).run(lambda tx: apply_reports(tx, host, agent_id, numbered, self._clock()))

    def refused(self, host: str) -> None:
        """Count a message in the name of a host that was refused, where there is such a host."""

        def count(tx: Transaction) -> None:
            found = tx.host(host)
            tx.save(replace(found, refused_messages=found.refused_messages + 1))

        try:
            self._writer(self._shard_of(host)).run(count)
        except FpgaPoolError as error:
            LOG.debug("a refused message of %s was not counted: %s", host, error)

    def flush(self) -> bool:
        """Record which hosts are alive, in one transaction.

        The next heartbeats of those that are lost, or whose place is to be confirmed, are compared in full.
        """
        with self._lock:
            alive, self._alive = self._alive, {}
        if alive:
            self._store.note_alive(alive, self._clock())
            with self._store.looking() as tx:
                generations, lost, unconfirmed = tx.generations(), tx.lost_hosts(), tx.unconfirmed_hosts()
            with self._lock:
                self._generations, self._unconfirmed = generations, unconfirmed
                for host in (lost | unconfirmed) & alive.keys():
                    self._known.pop(host, None)
        return False

    def _apply(self, tx: Transaction, heard: Heartbeat) -> tuple[list[Repair], Shard]:
        if heard.host not in self._unconfirmed and _is_confirmed(tx, heard):
            return apply_heartbeat(tx, heard, self._clock()), tx.shard
        stored = cast("SqlTransaction", tx)
        enrolment = stored.enrolment(heard.host)
        # Keys are read now and then: one that was revoked since must not bring back a host that was lost for that.
        if enrolment is None or not enrolment.key:
            raise NotEnrolled(f"host {heard.host}: its key was revoked")
        repairs = apply_heartbeat(tx, heard, self._clock())
        require_known_place(enrolment, heard.data_address, heard.node)
        if not enrolment.data_address:
            confirm_place(stored.connection, heard.host, heard.data_address, heard.node)
        return repairs, tx.shard

    def _says_nothing_new(self, heard: Heartbeat, content: Heartbeat) -> bool:
        with self._lock:
            known = self._known.get(heard.host)
            if known is None or heard.agent_id != known.content.agent_id:
                return False
            require_later(heard, known.content.boot, known.beat)  # the database may not know of that one yet
            if content != known.content or heard.unreported or self._is_due(heard.host, known):
                return False
            known.repeats += 1
            known.beat = heard.beat
            self._note(heard)
            return True

    def _note(self, heard: Heartbeat) -> None:
        """Have a heartbeat noted with the next ones of others, under the lock; counters of one before it as well."""
        before = self._alive.get(heard.host)
        counters = heard.counters or (before.counters if before is not None and before.boot == heard.boot else None)
        self._alive[heard.host] = LastBeat(heard.boot, heard.beat, heard.flows, counters)

    def _is_due(self, host: str, known: _Known) -> bool:
        """Return whether a host that says the same again is compared in full now."""
        repeats, now_s = known.repeats + 1, time.monotonic()
        if repeats < FULL_EVERY or self._generations.get(known.shard) == known.generation:
            return False
        if (self._comparing or now_s - self._compared_s < FULL_APART_S) and repeats < FULL_AT_LATEST:
            return False
        self._compared_s, self._comparing = now_s, host
        return True

    def _shard_of(self, host: str, availability_zone: str | None = None) -> str:
        """Return the shard of a host; a new host gets its shard now, if its zone is known."""
        known = self._shards.get(host)
        if known is not None:
            return known
        with self._store.reading() as tx:
            try:
                shard = tx.host(host).shard
            except NotFound:
                if availability_zone is None:
                    raise
                shard = self._rule.shard_for(availability_zone, tx.hosts_by_shard())
                new = True
            else:
                new = False
        if new:  # not remembered until the host is stored: another scheduler may be quicker
            self._store.ensure_shards([shard], self._clock())
        else:
            self._shards[host] = shard
        return shard


def _is_confirmed(tx: Transaction, heard: Heartbeat) -> bool:
    """Return whether a host lives and says of itself what was compared with its enrolment before."""
    try:
        host = tx.host(heard.host)
    except NotFound:
        return False
    said = heard.agent_id, heard.boot, heard.data_address, heard.node
    return host.alive and said == (host.agent_id, host.boot, host.data_address, host.node)
