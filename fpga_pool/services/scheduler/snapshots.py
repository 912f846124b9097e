"""The whole pool as columns, kept in memory and brought up to date from the database whenever it is asked for."""

import threading
from collections.abc import Mapping

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.store.store import Store


class Snapshots:
    """Answers what the pool is now, or what of it changed; threads share it.

    What is kept serves to read no row twice: every answer is as new as the database when it was asked for, so any
    scheduler can answer what comes after the snapshot of another.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._pool: PoolColumns | None = None

    def changed_after(self, seen: Mapping[str, int] | None) -> PoolColumns:
        """Return what changed after these generations of the shards; everything for None."""
        with self._lock:
            pool = self._pool = self._newest()
        return pool if seen is None else pool.changed_after(seen)

    def _newest(self) -> PoolColumns:
        if self._pool is None:
            return self._store.pool_columns()
        if self._pool.seen != (delta := self._store.pool_columns(self._pool.seen)).seen:
            try:
                return self._pool.merged(delta)
            except Conflict:  # something was removed
                return self._store.pool_columns()
        return self._pool
