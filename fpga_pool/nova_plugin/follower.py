"""A client's copy of the pool as columns, kept up to date by deltas."""

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.rpc.scheduler_api import SchedulerAPI


class PoolFollower:
    """Reads the whole pool once, and only changes from then on; thread-safe.

    Threads read independently, after the snapshot that was stored last. If an older snapshot replaces a newer one, the
    only effect is that the next delta is larger.
    """

    def __init__(self, scheduler: SchedulerAPI) -> None:
        self._scheduler = scheduler
        self._known: PoolColumns | None = None

    def now(self) -> PoolColumns:
        """Return the current state of the whole pool."""
        known = self._known
        found = PoolColumns.from_plain(self._scheduler.snapshot(None if known is None else known.seen))
        if known is not None:
            try:
                found = known.merged(found)
            except Conflict:  # something was removed, or the database was replaced
                found = PoolColumns.from_plain(self._scheduler.snapshot())
        self._known = found
        return found
