"""The whole pool as columns, kept in memory and brought up to date from the database whenever it is asked for."""

import threading
from collections.abc import Mapping

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store

#: How often hosts and slots are counted, to notice that one was removed.
COUNT_INTERVAL_S = 1.0


class Snapshots:
    """Answers what the pool is now, or what of it changed; threads share it.

    What is kept serves to read no row twice: every answer is as new as the database when it was asked for, so any
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
