"""How often each project may ask, and how many of its requests may be under way or wait for changes."""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.exceptions import TooManyRequests
from fpga_pool.model.objects.quotas import UNLIMITED, Quota, Resource

#: Requests of so many seconds may come at once.
BURST_S = 5.0
#: A quota that was changed is in force here so much later, at most.
REFRESH_S = 30.0
#: Projects that are remembered: those that asked last.
_PROJECTS = 4096
#: Requests that wait for changes, each in a thread of the process: of all projects, and of one.
_WAITS, _WAITS_OF_PROJECT = 24, 16
#: Where so many threads of a process are taken, a project has no more than these for its other requests: one of those
#: may keep a scheduler busy for most of a second.
_TAKEN, _UNDER_WAY = 24, 8


@dataclass(slots=True)
class _Project:
    limit: int | None
    #: None = no limit, or 0.
    allowance: Allowance | None
    #: When its limit was asked for, on the monotonic clock.
    asked_s: float


class RequestRates:
    """Counts the requests of each project; threads share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: The one that asked last is the last.
        self._projects: OrderedDict[str, _Project] = OrderedDict()

    def take(self, project_id: str, quota: Callable[[str], Quota]) -> None:
        """Count one request; TooManyRequests if the project's quota, which is asked for now and then, allows none now.

        Errors of `quota` are raised: who answers it answers the requests, too.
        """
        found = quota(project_id) if self._is_due(project_id) else None
        with self._lock:
            project = self._projects.get(project_id) if found is None else self._noted(project_id, _limit(found))
            if project is None:  # forgotten just now
                return
            if project.limit == 0:
                raise TooManyRequests(f"project {project_id} may send no requests: its quota is 0", REFRESH_S)
            if project.allowance is not None and not project.allowance.take(self._clock()):
                raise TooManyRequests(
                    f"project {project_id} sends more than {project.limit} requests per second",
                    project.allowance.wait_s(),
                )

    def _is_due(self, project_id: str) -> bool:
        """Return whether to ask for the limit of a project; other requests go on by the last one meanwhile."""
        with self._lock:
            project = self._projects.get(project_id)
            if project is None:
                return True
            self._projects.move_to_end(project_id)
            due = self._clock() - project.asked_s >= REFRESH_S
            if due:
                project.asked_s = self._clock()
            return due

    def _noted(self, project_id: str, limit: int | None) -> _Project:
        known = self._projects.get(project_id)
        if known is not None and known.limit == limit:
            return known
        allowance = Allowance(at_once=BURST_S * limit, per_s=limit) if limit else None
        self._projects[project_id] = noted = _Project(limit, allowance, self._clock())
        while len(self._projects) > _PROJECTS:
            self._projects.popitem(last=False)
        return noted


def _limit(quota: Quota) -> int | None:
    limit = next(one.limit for one in quota.resources if one.resource == Resource.REQUESTS_PER_S)
    return None if limit == UNLIMITED else limit


class Places:
    """Counts the requests that are under way, and those that wait; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def taken(self, project_id: str, wait_s: float) -> Iterator[float]:
        """Give how long a request may wait: as it wishes, or not at all where many do.

        TooManyRequests where most threads are taken, and many by requests of the project that do not wait.
        """
        with self._lock:
            mine = self._waiting if wait_s > 0 and self._may_wait(project_id) else self._under_way
            # Without a project it is an operator's.
            if mine is self._under_way and project_id and mine[project_id] >= _UNDER_WAY and self._is_busy():
                raise TooManyRequests(f"{mine[project_id]} requests of project {project_id} are under way")
            mine[project_id] += 1
        try:
            yield wait_s if mine is self._waiting else 0.0
        finally:
            with self._lock:
                mine -= Counter([project_id])

    def _is_busy(self) -> bool:
        return self._under_way.total() + self._waiting.total() >= _TAKEN

    def _may_wait(self, project_id: str) -> bool:
        return self._waiting.total() < _WAITS and self._waiting[project_id] < _WAITS_OF_PROJECT
