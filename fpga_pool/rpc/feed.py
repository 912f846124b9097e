"""The pool as columns on the side of those who look at all of it often: schedulers tell them what has changed."""

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.rpc.follower import PoolFollower
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import POOL_TOPIC, VERSION_1, answers, server

#: How often schedulers are told that somebody follows the pool, who forget it after a few times as long.
RENEW_S = 20.0
#: Without a word for so long (several times as long as a scheduler is silent) the pool is asked for.
QUIET_S = 3.0
#: Everybody gets all messages of the topic, so nobody needs a name of his own.
_NAME = "reader"


class PoolFeed(PoolFollower):
    """Brings its copy of the pool up to date when a scheduler tells of a change; threads may share it.

    `start` before the first `now`; `stop` once.  Every message says which moment it follows.  Where one was missed,
    or none comes any more, the pool is asked as by any other follower: what is told is a short cut, never the only way.
    """

    target = VERSION_1

    def __init__(self, transport: Any, scheduler: SchedulerAPI, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(scheduler)
        self._clock = clock
        self._lock = Lock()
        self._server = server(transport, POOL_TOPIC, _NAME, [self])
        #: When the copy was known to be up to date; when schedulers were told that it is kept.
        self._fresh_at = self._renewed_at = float("-inf")

    def start(self) -> None:
        """Begin to listen."""
        self._server.start()

    def stop(self) -> None:
        """End."""
        self._server.stop()
        self._server.wait()

    def now(self) -> PoolColumns:
        """Return the whole pool, at most as old as two messages are apart."""
        now_s = self._clock()
        if now_s - self._renewed_at >= RENEW_S:
            self._renewed_at = now_s
            self._scheduler.follow()
        known = self._known
        if known is not None and now_s - self._fresh_at < QUIET_S:
            return known
        return self._ask()

    def _ask(self) -> PoolColumns:
        found = self.asked(known := self._known)
        with self._lock:
            if self._known is known:  # nothing was told meanwhile
                self._known, self._fresh_at = found, self._clock()
        return found

    @answers
    def pool_changed(self, context: dict[str, Any], after: Mapping[str, int], changes: dict[str, Any]) -> None:
        """Take what changed in the pool after a moment; see `SchedulerAPI.tell_followers`."""
        self.take(after, PoolColumns.from_plain(changes))

    def take(self, after: Mapping[str, int], changes: PoolColumns) -> None:
        """Bring the copy up to date, if it is at least as new as `after`; else it is asked for when it is needed."""
        with self._lock:
            known = self._known
            if known is None or not _reaches(changes.seen, known.seen):
                return  # there is nothing to change yet, or this is older than what is known
            if not _reaches(known.seen, after):
                self._fresh_at = float("-inf")
                return
            try:
                self._known = known.merged(changes)
            except Conflict:  # something was removed
                self._fresh_at = float("-inf")
            else:
                self._fresh_at = self._clock()


def _reaches(seen: Mapping[str, int], moment: Mapping[str, int]) -> bool:
    """Say whether who has seen these generations of the shards knows all of a moment."""
    return all(seen.get(shard, -1) >= generation for shard, generation in moment.items())
