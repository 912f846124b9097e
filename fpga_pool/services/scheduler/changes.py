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

#: Maximum number of requests that wait: each occupies a thread of the server, which must be able to answer others.
WAITING = 24
#: Changes by other schedulers are noticed within this time.
POLL_S = 0.5
#: Number of batches whose committed states are kept, and largest number of jobs of such a batch.
KEPT, SMALL_BATCH = 256, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Committed state of a batch and all its jobs after one transaction, and the generation of their shard."""

    batch: Batch
    #: By index, without their histories.
    jobs: Sequence[Job]
    seen: dict[str, int]

    def in_states(self, states: Collection[JobState]) -> list[Job]:
        """Return the jobs in these states; if none is given, all jobs."""
        return [job for job in self.jobs if not states or job.state in states]


def _committed(tx: SqlTransaction) -> dict[str, Committed]:
    """Return the states of the batches that a transaction has changed together with all their jobs, by batch."""
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
    """Notifies one waiting request of changes of its batch."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._committed: Committed | None = None

    def note(self, committed: Committed | None) -> None:
        """Notify that jobs have changed; `committed` is the new state, or None if it must be read."""
        self._committed = committed
        self._event.set()

    def wait(self, timeout_s: float) -> Committed | None:
        """Wait until jobs have changed, or until the timeout; return the new state if it is known without reading."""
        self._event.wait(timeout_s)
        self._event.clear()
        committed, self._committed = self._committed, None
        return committed


class Changes:
    """Notifies waiting requests that a job of their batch has changed; thread-safe.

    `observer` is also called with each committed transaction.
    """

    def __init__(self, observer: Callable[[SqlTransaction], object] = lambda _: None) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        #: By batch, the watches of the waiting requests.
        self._watches: dict[str, set[Watch]] = {}
        self._waiting = 0
        #: States of the batches that changed last, as far as they are known without reading.
        self._last: OrderedDict[str, Committed] = OrderedDict()
        #: By shard, its generation after the last transaction that was noted.
        self._noted: dict[str, int] = {}

    def last(self, batch_uuid: str) -> Committed | None:
        """Return the state of a batch after the last transaction of this process, or None if it is not known."""
        with self._lock:
            return self._last.get(batch_uuid)

    @contextmanager
    def watching(self, batch_uuid: str) -> Iterator[Watch | None]:
        """Yield a watch that is notified whenever jobs of a batch change inside; None if too many requests wait."""
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
                    committed = {}  # a later transaction was noted before this one, so requests must read
                else:
                    if found > noted:  # another process has changed the shard meanwhile
                        self._last.clear()
                    self._noted[tx.shard.name] = found + tx.has_written
                for batch_uuid in tx.changed_batches:
                    known = committed.get(batch_uuid) or (self._continued(batch_uuid, tx) if found >= noted else None)
                    self._keep(batch_uuid, known)
                    for watch in self._watches.get(batch_uuid, ()):
                        watch.note(known)
            try:
                self._observer(tx)
            except Exception:  # an error would make the commit look failed
                LOG.exception("a committed change was not counted")

        return transaction

    def _continued(self, batch_uuid: str, tx: SqlTransaction) -> Committed | None:
        """Return the state of a batch after a transaction that changed all its jobs, but not the batch itself."""
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


#: Interval at which hosts and slots are counted, to notice that one was removed.
COUNT_INTERVAL_S = 1.0


class Snapshots:
    """Returns the pool as columns, whole or as a delta; thread-safe.

    The cache only avoids reading rows twice. Every answer is as recent as the database at the time of the call, so any
    scheduler can return the changes after a snapshot from another one.
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
