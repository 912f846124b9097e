"""When which project may have a dry run."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fpga_pool.model.exceptions import TooManyRequests

#: A dry run that takes no longer makes nobody wait.
SHORT_S = 1.0


class DryRuns:
    """Lets work be planned that nobody has created: one at a time, and long ones of a project half of the time.

    So at most one thread competes with the planners, and no project keeps others from a dry run.
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._busy = threading.Lock()
        #: Until when projects wait for their next one.
        self._waits_until: dict[str, float] = {}

    @contextmanager
    def turn(self, project_id: str) -> Iterator[None]:
        """Have a dry run take place now; TooManyRequests if another one does, or this project's last was long."""
        if not self._busy.acquire(blocking=False):
            raise TooManyRequests("another dry run is being planned, and there is one at a time; repeat it in a moment")
        try:
            began_s = self._timer()
            self._waits_until = {name: until for name, until in self._waits_until.items() if until > began_s}
            if (until_s := self._waits_until.get(project_id)) is not None:
                raise TooManyRequests(
                    f"the last dry run of project {project_id} took long: the next one is possible in "
                    f"{until_s - began_s:.1f} s"
                )
            try:
                yield
            finally:
                ended_s = self._timer()
                if ended_s - began_s > SHORT_S:
                    self._waits_until[project_id] = 2 * ended_s - began_s
        finally:
            self._busy.release()
