"""Limits on when each project may have a dry run."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fpga_pool.model.exceptions import TooManyRequests

#: After a dry run that takes no longer, its project need not wait for the next one.
SHORT_S = 0.05
#: How long a dry run waits for the end of its project's pause and for the dry run of another project, together.
PATIENCE_S = 1.0


class DryRuns:
    """Admits dry runs: one at a time, and those of each project for at most half of the time.

    So at most one thread competes with the planners, one thread of each project waits, and no project keeps others from
    dry runs.
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.monotonic,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timer = timer
        self._patience_s, self._sleep = patience_s, sleep
        self._busy, self._lock = threading.Lock(), threading.Lock()
        #: Guarded by the lock: projects with a running or waiting dry run, and until when each project must pause.
        self._present: set[str] = set()
        self._waits_until: dict[str, float] = {}

    @contextmanager
    def turn(self, project_id: str) -> Iterator[None]:
        """Admit a dry run after its project's pause and the dry runs of others.

        Raises TooManyRequests if that would take longer than the patience, or if the project has another dry run.
        """
        pause_s = self._enter(project_id)
        try:
            if pause_s > 0.0:
                self._sleep(pause_s)
            if not self._busy.acquire(timeout=self._patience_s - pause_s):
                raise _busy()
            try:
                began_s = self.timer()
                try:
                    yield
                finally:
                    self._note(project_id, began_s, self.timer())
            finally:
                self._busy.release()
        finally:
            with self._lock:
                self._present.remove(project_id)

    def _enter(self, project_id: str) -> float:
        """Record that a project has a dry run; return how long it must pause first, in seconds."""
        with self._lock:
            now_s = self.timer()
            self._waits_until = {name: until for name, until in self._waits_until.items() if until > now_s}
            pause_s = self._waits_until.get(project_id, now_s) - now_s
            if pause_s > self._patience_s:
                raise TooManyRequests(
                    f"the last dry run of project {project_id} took a while: the next one is possible in "
                    f"{pause_s:.2f} s"
                )
            if project_id in self._present:
                raise _busy()
            self._present.add(project_id)
            return pause_s

    def _note(self, project_id: str, began_s: float, ended_s: float) -> None:
        if ended_s - began_s > SHORT_S:
            with self._lock:
                self._waits_until[project_id] = 2 * ended_s - began_s


def _busy() -> TooManyRequests:
    return TooManyRequests("another dry run is being planned, and there is one at a time; repeat it in a moment")
