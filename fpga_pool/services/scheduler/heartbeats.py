"""Intake of the agents' heartbeats, by any scheduler.

A heartbeat with the same content as the one before needs no transaction: that hosts are alive is recorded for all hosts
together.  While its shard changes, a host is nevertheless compared with the database in full from time to time, so that
no difference lasts for long.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from fpga_pool.model.exceptions import FpgaPoolError, NotEnrolled, NotFound
from fpga_pool.model.messages.agents import Heartbeat, Report
from fpga_pool.model.messages.counters import HostCounters
from fpga_pool.model.objects.hosts import require_known_place
from fpga_pool.model.objects.pool import Shard
from fpga_pool.model.rules.shared.reconcile import Repair, apply_heartbeat, require_later
from fpga_pool.model.rules.shared.reports import apply_reports, require_agent
from fpga_pool.model.rules.shared.sharding import ShardRule
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.rpc.casts import CastReader
from fpga_pool.services.clock import Clock
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.store import LastBeat, Store, confirm_place
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)

#: A host sends at least this many heartbeats within the time after which it is considered lost, and one within the
#: second, in seconds, so that an agent notices within a while if no scheduler accepts any.
HEARTBEATS, LONGEST_DUE_S = 3, 20.0
#: As long as a host has no news, so many of them may be life signs before one is a full heartbeat again.
LIFE_SIGNS = 5
#: A scheduler that has not been able to read life signs for this long, in seconds, asks for heartbeats instead.
GIVEN_UP_S = 10.0
#: While its shard changes, one in this many heartbeats of a host is compared in full, even if it contains nothing new.
FULL_EVERY = 4
#: Such comparisons are done for one host at a time, and at least this many seconds apart, unless a host has waited for
#: this many heartbeats. Otherwise they would occupy the threads of all other calls when the database is busy.
FULL_APART_S, FULL_AT_LATEST = 0.05, 40


@dataclass(slots=True)
class _Known:
    """The last heartbeat of a host, without fields that change in each one, and the number of equal ones since."""

    content: Heartbeat
    beat: int
    #: The shard with which it was compared, and the generation of the shard.
    shard: str
    generation: int
    repeats: int


class HeartbeatIntake:
    """Stores heartbeats and reports in the database; thread-safe."""

    def __init__(self, store: Store, writer: Callable[[str], ShardWriter], rule: ShardRule, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._rule = rule
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        #: By host, the last heartbeat whose sign of life, flows and counters are not stored yet.
        self._alive: dict[str, LastBeat] = {}
        self._shards: dict[str, str] = {}
        #: Generations of the shards at the last flush.
        self._generations: Mapping[str, int] = {}
        #: Hosts whose enrolment has no address yet, because an operator has approved their keys again.
        self._unconfirmed: set[str] = set()
        #: Reads the life signs of agents; None if agents are to send heartbeats only.
        self.life_signs: CastReader | None = None
        #: When any heartbeat arrived last, by the monotonic clock.
        self._heard_s = -math.inf
        #: When a host without news was last compared in full, and the host that is being compared.
        self._compared_s, self._comparing = 0.0, ""

    def claim(self, host: str, agent_id: str) -> None:
        """Raise HostTaken unless a heartbeat of this agent would be accepted."""
        with self._store.reading() as tx:
            known = next((known for known in tx.hosts() if known.name == host), None)
        if known is not None and known.alive:
            require_agent(known, agent_id)

    def due_s(self, host_timeout_s: float) -> tuple[float, float]:
        """Return in how many seconds a host has to send a heartbeat or life sign, and in how many a heartbeat."""
        due_s = min(host_timeout_s / HEARTBEATS, LONGEST_DUE_S)
        reads = self.life_signs is not None and self.life_signs.age_s() < GIVEN_UP_S
        return due_s, (LIFE_SIGNS + 1) * due_s if reads else due_s

    def misses_life_signs(self, host_timeout_s: float, interval_s: float) -> bool:
        """Return whether hosts may send life signs that are not read, as they should be every `interval_s`."""
        if self.life_signs is None:
            return False
        due_s, _ = self.due_s(host_timeout_s)
        unread_s = self.life_signs.age_s()
        # In the end, each host has been told to send heartbeats instead.
        return due_s + interval_s < unread_s < GIVEN_UP_S + (LIFE_SIGNS + 2) * due_s

    def heard_s(self) -> float:
        """Return the seconds since the last heartbeat of any host."""
        return time.monotonic() - self._heard_s

    def heartbeat(self, heard: Heartbeat) -> list[Repair]:
        """Store the observed state of a host; return the repairs.

        Raises LateMessage if a later heartbeat of the same agent was received before.
        """
        self._heard_s = time.monotonic()
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
            self._note(heard.host, _last_beat(heard))
            # After repairs, the next heartbeat is compared in full as well.
            self._known[heard.host] = _Known(
                content, heard.beat, found.name, found.pool_generation, FULL_EVERY if repairs else 0
            )
        return repairs

    def alive(self, host: str, agent_id: str, boot: int, beat: int, counters: HostCounters | None) -> None:
        """Record a life sign of a host; no effect unless it is later than the last heartbeat of the same agent."""
        self._heard_s = time.monotonic()
        with self._lock:
            known = self._known.get(host)
            if known is not None and known.content.agent_id == agent_id:
                if (boot, beat) <= (known.content.boot, known.beat):
                    return
                known.repeats, known.beat = known.repeats + 1, beat
            self._note(host, LastBeat(agent_id, boot, beat, (), counters))

    def report(self, host: str, agent_id: str, numbered: list[tuple[int, Report]]) -> list[str]:
        """Store reports of a host; return the reasons for which reports were ignored."""
        shard = self._shard_of(host)
        return self._writer(shard).run(lambda tx: apply_reports(tx, host, agent_id, numbered, self._clock()))

    def refused(self, host: str) -> None:
        """Count a refused message that was sent in the name of a host, if that host exists."""

        def count(tx: Transaction) -> None:
            found = tx.host(host)
            tx.save(replace(found, refused_messages=found.refused_messages + 1))

        try:
            self._writer(self._shard_of(host)).run(count)
        except FpgaPoolError as error:
            LOG.debug("a refused message of %s was not counted: %s", host, error)

    def step(self) -> None:
        """Read the life signs that have arrived, and record which hosts are alive."""
        try:
            if self.life_signs is not None:
                self.life_signs.read()
        finally:
            self.flush()

    def flush(self) -> None:
        """Record which hosts are alive, in one transaction.

        The next heartbeats of hosts that are lost, or whose address is to be confirmed, are compared in full.
        """
        with self._lock:
            alive, self._alive = self._alive, {}
        if alive:
            self._store.note_alive(alive, self._clock())
            with self._store.single_reads() as tx:
                generations, lost, unconfirmed = tx.generations(), tx.lost_hosts(), tx.unconfirmed_hosts()
            with self._lock:
                self._generations, self._unconfirmed = generations, unconfirmed
                for host in (lost | unconfirmed) & alive.keys():
                    self._known.pop(host, None)

    def _apply(self, tx: Transaction, heard: Heartbeat) -> tuple[list[Repair], Shard]:
        if heard.host not in self._unconfirmed and _is_confirmed(tx, heard):
            return apply_heartbeat(tx, heard, self._clock()), tx.shard
        stored = cast("SqlTransaction", tx)
        enrolment = stored.enrolment(heard.host)
        # Keys are cached for a while: a key that was revoked meanwhile must not bring back the lost host.
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
            require_later(heard, known.content.boot, known.beat)  # that one may not be in the database yet
            if content != known.content or heard.unreported or self._is_due(heard.host, known):
                return False
            known.repeats += 1
            known.beat = heard.beat
            self._note(heard.host, _last_beat(heard))
            return True

    def _note(self, host: str, last: LastBeat) -> None:
        """Keep a heartbeat for the next flush, with the last counters if it has none; call this with the lock held."""
        before = self._alive.get(host)
        if before is not None and before[:2] == last[:2] and last.counters is None:
            last = last._replace(counters=before.counters)
        self._alive[host] = last

    def _is_due(self, host: str, known: _Known) -> bool:
        """Return whether a heartbeat without news is to be compared in full now."""
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
        if new:  # not remembered until the host is stored, as another scheduler may be faster
            self._store.ensure_shards([shard], self._clock())
        else:
            self._shards[host] = shard
        return shard


def _last_beat(heard: Heartbeat) -> LastBeat:
    return LastBeat(heard.agent_id, heard.boot, heard.beat, heard.flows, heard.counters)


def _is_confirmed(tx: Transaction, heard: Heartbeat) -> bool:
    """Return whether a host is alive and reports the same identity that was already compared with its enrolment."""
    try:
        host = tx.host(heard.host)
    except NotFound:
        return False
    said = heard.agent_id, heard.boot, heard.data_address, heard.node
    return host.alive and said == (host.agent_id, host.boot, host.data_address, host.node)
