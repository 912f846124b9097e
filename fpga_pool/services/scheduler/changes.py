"""Questions that wait for a batch to change, answered as soon as it does where this scheduler changed it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fpga_pool.model.transaction import Transaction
from fpga_pool.store.transaction import SqlTransaction

#: How many may wait: each has a thread of the server, which must go on answering.
WAITING = 24
#: What other schedulers change is seen within this.
LOOK_S = 0.5


class Changes:
    """Tells those who wait that a job of their batch was changed; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By batch, the events of those who wait.
        self._watches: dict[str, set[threading.Event]] = {}
        self._waiting = 0

    @contextmanager
    def watching(self, batch_uuid: str) -> Iterator[threading.Event | None]:
        """Give what is set whenever jobs of a batch have changed, for as long as this lasts; None if too many wait."""
        watch = self._watch(batch_uuid)
        try:
            yield watch
        finally:
            if watch is not None:
                self._forget(batch_uuid, watch)

    def _watch(self, batch_uuid: str) -> threading.Event | None:
        with self._lock:
            if self._waiting >= WAITING:
                return None
            self._waiting += 1
            watch = threading.Event()
            self._watches.setdefault(batch_uuid, set()).add(watch)
            return watch

    def _forget(self, batch_uuid: str, watch: threading.Event) -> None:
        with self._lock:
            self._waiting -= 1
            watches = self._watches[batch_uuid]
            watches.discard(watch)
            if not watches:
                del self._watches[batch_uuid]

    def noted(
        self, begin: Callable[[], AbstractContextManager[SqlTransaction]]
    ) -> Callable[[], AbstractContextManager[Transaction]]:
        """Return what begins such transactions, and tells of each when it is committed."""

        @contextmanager
        def transaction() -> Iterator[Transaction]:
            with begin() as tx:
                yield tx
            with self._lock:
                for batch_uuid in tx.changed_batches & self._watches.keys():
                    for watch in self._watches[batch_uuid]:
                        watch.set()

        return transaction
