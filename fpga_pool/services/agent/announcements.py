"""Streams of jobs that the agent does not know yet: a client may be faster than the command that announces its job."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.exceptions import TransferRefused

#: Jobs that were released last, of which no command will come.
REMEMBERED = 10_000


class Announcements:
    """Who waits for which job.  No method waits, or takes the lock of the jobs; any thread may call them."""

    def __init__(self, jobs: Mapping[str, HeldJob]) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[int, Future[None]]]] = {}
        self._released: OrderedDict[str, int] = OrderedDict()

    def of(self, uuid: str, attempt: int) -> "Future[None] | None":
        """Return what ends when a job is held at this attempt or a later one, or was released; None if it is held."""
        with self._lock:
            if self._is_held(uuid, attempt):
                return None
            if self._released.get(uuid, -1) >= attempt:
                raise TransferRefused("unknown_job", f"job {uuid} was released by this host")
            future: Future[None] = Future()
            future.add_done_callback(lambda _: self._forget(uuid, future))
            self._waiting.setdefault(uuid, []).append((attempt, future))
            return future

    def changed(self, released: Iterable[tuple[str, int]]) -> None:
        """Note that commands were executed, by which attempts of jobs were `released`."""
        with self._lock:
            for uuid, attempt in released:
                self._released[uuid] = attempt
                self._released.move_to_end(uuid)
            while len(self._released) > REMEMBERED:
                self._released.popitem(last=False)
            decided = [
                future
                for uuid, waiting in self._waiting.items()
                for attempt, future in waiting
                if self._is_held(uuid, attempt) or self._released.get(uuid, -1) >= attempt
            ]
        for future in decided:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _is_held(self, uuid: str, attempt: int) -> bool:
        job = self._jobs.get(uuid)  # a look at what may change at any moment: the lock is held while a disk works
        return job is not None and job.assignment.attempt >= attempt

    def _forget(self, uuid: str, future: "Future[None]") -> None:
        with self._lock:
            left = [one for one in self._waiting.get(uuid, ()) if one[1] is not future]
            if left:
                self._waiting[uuid] = left
            else:
                self._waiting.pop(uuid, None)
