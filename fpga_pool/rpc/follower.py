"""A client's copy of the pool as columns, kept up to date by deltas.

It is here, not among the services, because it needs no more than the calls of this package: a process that is not the
pool's own imports nothing else for it.
"""

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.rpc.scheduler_api import SchedulerAPI


class PoolFollower:
    """Asks for the whole pool once, and for what changed from then on; threads may share it.

    Each asks for itself, after whichever snapshot was the last: one that is replaced by an older one costs a larger
    delta, and nothing else.
    """

    def __init__(self, scheduler: SchedulerAPI) -> None:
        self._scheduler = scheduler
        self._known: PoolColumns | None = None

    def now(self) -> PoolColumns:
        """Return the whole pool as it is now."""
        known = self._known
        found = self._scheduler.snapshot(None if known is None else known.seen)
        if known is not None:
            try:
                found = known.merged(found)
            except Conflict:  # something was removed, or the database is another one
                found = self._scheduler.snapshot()
        self._known = found
        return found
