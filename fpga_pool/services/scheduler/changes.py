"""Notifications of changed batches to waiting requests, and a snapshot of the pool in columns, kept in memory."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.objects.pool import Batch, Job, JobState
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)

#: How many may wait: each has a thread of the server, which must go on answering.
WAITING = 24
#: What other schedulers change is seen within this.
LOOK_S = 0.5
#: So many batches are kept as they were left, each of so many jobs at most.
KEPT, SMALL_BATCH = 256, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch and all its jobs as one transaction has left them, and the generation of their shard."""

    batch: Batch
    #: By index, without their histories.
    jobs: Sequence[Job]
    seen: dict[str, int]

    def in_states(self, states: Collection[JobState]) -> list[Job]:
        """Return its jobs in some states (none named = any)."""
        return [job for job in self.jobs if not states or job.state in states]


def _committed(tx: SqlTransaction) -> dict[str, Committed]:
    """Return the batches that a transaction has changed with each of their jobs, as it has left them."""
    jobs: dict[str, list[Job]] = {}
    for _, job in tx.changes(Job):
        jobs.setdefault(job.batch_uuid, []).append(job)
    return {
        batch.uuid: Committed(
            batch=batch,
            jobs=[changed(job, history=()) for job in sorted(jobs[batch.uuid], key=lambda job: job.index)],
            seen={tx.shard.name: tx.shard.pool_generation + 1},
        )
        for _, batch in tx.changes(Batch)
        if len(jobs.get(batch.uuid, ())) == batch.jobs
    }


class Watch:
    """What a waiting request is told about its batch."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._committed: Committed | None = None

    def tell(self, committed: Committed | None) -> None:
        """Say that jobs have changed; and how, if all have."""
        self._committed = committed
        self._event.set()

    def wait(self, timeout_s: float) -> Committed | None:
        """Wait until jobs have changed, or until the timeout; return how, if that need not be read."""
        self._event.wait(timeout_s)
        self._event.clear()
        committed, self._committed = self._committed, None
        return committed


class Changes:
    """Notifies waiting requests that a job of their batch has changed; threads share it.

    `observer` is given each committed transaction as well.
    """

    def __init__(self, observer: Callable[[SqlTransaction], object] = lambda _: None) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        #: By batch, what is told to the waiting requests.
        self._watches: dict[str, set[Watch]] = {}
        self._waiting = 0
        #: The batches that changed last, as far as that is known without reading them.
        self._last: OrderedDict[str, Committed] = OrderedDict()
        #: By shard, in which generation the last transaction that was noted has left it.
        self._noted: dict[str, int] = {}

    def last(self, batch_uuid: str) -> Committed | None:
        """Return how a transaction of this process has left a batch; None if none did, or a later one left it open."""
        with self._lock:
            return self._last.get(batch_uuid)

    @contextmanager
    def watching(self, batch_uuid: str) -> Iterator[Watch | None]:
        """Give what is told whenever jobs of a batch have changed, for as long as this lasts; None if too many wait."""
        watch = self._watch(batch_uuid)
        try:
            yield watch
        finally:
            if watch is not None:
                self._forget(batch_uuid, watch)

    def _watch(self, batch_uuid: str) -> Watch | None:
        with self._lock:
            if self._waiting >= WAITING:
                return None
            self._waiting += 1
            watch = Watch()
            self._watches.setdefault(batch_uuid, set()).add(watch)
            return watch

    def _forget(self, batch_uuid: str, watch: Watch) -> None:
        with self._lock:
            self._waiting -= 1
            watches = self._watches[batch_uuid]
            watches.discard(watch)
            if not watches:
                del self._watches[batch_uuid]

    def noted(
        self, begin: Callable[[], AbstractContextManager[SqlTransaction]]
    ) -> Callable[[], AbstractContextManager[Transaction]]:
        """Return a function that begins transactions and publishes their changes after the commit."""

        @contextmanager
        def transaction() -> Iterator[Transaction]:
            with begin() as tx:
                yield tx
            committed = _committed(tx)
            with self._lock:
                found, noted = tx.shard.pool_generation, self._noted.get(tx.shard.name, 0)
                if found < noted:
                    committed = {}  # a later transaction was noted before this one: readers look for themselves
                else:
                    if found > noted:  # another process has changed the shard meanwhile
                        self._last.clear()
                    self._noted[tx.shard.name] = found + tx.has_written
                for batch_uuid in tx.changed_batches:
                    told = committed.get(batch_uuid) or (self._continued(batch_uuid, tx) if found >= noted else None)
                    self._keep(batch_uuid, told)
                    for watch in self._watches.get(batch_uuid, ()):
                        watch.tell(told)
            try:
                self._observer(tx)
            except Exception:  # what is committed must not look as if it were not
                LOG.exception("a committed change was not counted")

        return transaction

    def _continued(self, batch_uuid: str, tx: SqlTransaction) -> Committed | None:
        """Return how a transaction that changed all jobs of a batch, but not the batch itself, has left it."""
        last, batches = self._last.get(batch_uuid), {batch.uuid for _, batch in tx.changes(Batch)}
        jobs = [changed(job, history=()) for _, job in tx.changes(Job) if job.batch_uuid == batch_uuid]
        if last is None or batch_uuid in batches or len(jobs) < last.batch.jobs:
            return None
        jobs.sort(key=lambda job: job.index)
        return Committed(batch=last.batch, jobs=jobs, seen={tx.shard.name: tx.shard.pool_generation + 1})

    def _keep(self, batch_uuid: str, committed: Committed | None) -> None:
        self._last.pop(batch_uuid, None)
        if committed is not None and committed.batch.jobs <= SMALL_BATCH:
            self._last[batch_uuid] = committed
            if len(self._last) > KEPT:
                self._last.popitem(last=False)


#: How often hosts and slots are counted, to notice that one was removed.
COUNT_INTERVAL_S = 1.0


class Snapshots:
    """Serves the pool as columns, whole or as a delta; threads share it.

    The cache saves reading a row twice: every answer is as new as the database when it was asked for, so any
    scheduler can answer what comes after the snapshot of another.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counted_at = 0.0
        self._lock = threading.Lock()
        self._pool: PoolColumns | None = None

    def changed_after(self, seen: Mapping[str, int] | None) -> PoolColumns:
        """Return what changed after these generations of the shards; everything for None."""
        with self._lock:
            pool = self._pool = self._newest()
        return pool if seen is None else pool.changed_after(seen)

    def _newest(self) -> PoolColumns:
        now_s = self._clock()
        count = now_s - self._counted_at >= COUNT_INTERVAL_S
        if count:
            self._counted_at = now_s
        if self._pool is None:
            return self._store.pool_columns()
        try:
            return self._pool.merged(self._store.pool_columns(self._pool.seen, count=count))
        except Conflict:  # something was removed
            return self._store.pool_columns()
