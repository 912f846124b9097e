"""Questions that wait for something to change, answered as soon as it does where this scheduler changed it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fpga_pool.model.transaction import Transaction

#: How many may wait: each has a thread of the server, which must go on answering.
WAITING = 16
#: What other schedulers change is seen within this.
LOOK_S = 0.25
#: Changes come in swarms: a question is not looked at more often than this.
PAUSE_S = 0.02

Begin = Callable[[], AbstractContextManager[Transaction]]


class Changes:
    """Tells those who wait that something was committed; threads share it."""

    def __init__(self) -> None:
        self._places = threading.Semaphore(WAITING)
        self._changed = threading.Condition()
        #: How many changes there were.
        self.count = 0
        self._pause = threading.Event()  # never set

    @contextmanager
    def waiting(self) -> Iterator[bool]:
        """Take one of the places of those who wait, for as long as this lasts; say whether there was one."""
        got_place = self._places.acquire(blocking=False)
        try:
            yield got_place
        finally:
            if got_place:
                self._places.release()

    def wait(self, count: int, timeout_s: float) -> None:
        """Wait until it is worth looking again after that many changes, at most until the timeout."""
        self._pause.wait(min(PAUSE_S, timeout_s))
        with self._changed:
            self._changed.wait_for(lambda: self.count != count, min(LOOK_S, max(timeout_s - PAUSE_S, 0.0)))

    def noted(self, begin: Begin) -> Begin:
        """Return what begins such transactions, and tells of each when it is committed."""

        @contextmanager
        def transaction() -> Iterator[Transaction]:
            with begin() as tx:
                yield tx
            with self._changed:
                self.count += 1
                self._changed.notify_all()

        return transaction
