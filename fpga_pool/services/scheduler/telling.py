"""What changes in the pool, told to those who follow it, while there are any."""

import logging
import time
from collections.abc import Callable, Collection, Mapping

from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.scheduler.snapshots import Snapshots

LOG = logging.getLogger(__name__)

#: How often changes are looked for, and how often something is said where there are none.
TELL_S, BEAT_S = 0.2, 1.0
#: Who follows the pool says so at least three times as often.
FOLLOWED_S = 60.0


class Teller:
    """Tells what changed since it told last.  Of all schedulers only the owner of the first shard does.

    Generations are the database's, so what another one told before or tells again does no harm.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        owned: Callable[[], Collection[str]],
        tell: Callable[[Mapping[str, int], PoolColumns], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshots = snapshots
        self._owned = owned
        self._tell = tell
        self._clock = clock
        self._followed_until = self._told_at = float("-inf")
        #: The moment that was told last.
        self._told: Mapping[str, int] | None = None

    def followed(self) -> None:
        """Note that somebody follows the pool."""
        self._followed_until = self._clock() + FOLLOWED_S

    def step(self) -> bool:
        """Tell what has changed, if anybody wants to know."""
        owned = self._owned()
        if not owned or self._clock() >= self._followed_until:
            self._told = None
            return False
        pool = self._snapshots.changed_after(None)
        told, self._told = self._told, pool.seen
        if told is None or min(pool.seen) not in owned:
            return False
        changes = pool.changed_after(told)
        if any(changes.rows) or self._clock() - self._told_at >= BEAT_S:
            self._told_at = self._clock()
            try:
                self._tell(told, changes)
            except MessagingError as error:
                LOG.debug("those who follow the pool were not told; they ask: %s", error)
        return False
