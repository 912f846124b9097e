"""Rate limits of projects, and limits of their concurrent requests and of requests that wait for changes."""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fpga_pool.model.allowance import Allowance
from fpga_pool.model.exceptions import TooManyRequests
from fpga_pool.model.objects.quotas import UNLIMITED, Quota, Resource

#: Size of a burst, as a duration at the limit of the rate.
BURST_S = 5.0
#: Maximum time until a changed quota takes effect.
REFRESH_S = 30.0
#: Maximum number of projects that are remembered: those with the most recent requests.
_PROJECTS = 4096
#: Maximum number of requests that wait for changes, each in a thread of the process: of all projects, and of one.
_WAITS, _WAITS_OF_PROJECT = 24, 16
#: If this many threads of a process are busy, a project may have at most _UNDER_WAY requests that do not wait, as one
#: such request may occupy a scheduler for most of a second.
_TAKEN, _UNDER_WAY = 24, 8


@dataclass(slots=True)
class _Project:
    limit: int | None
    #: None if the limit is None or 0.
    allowance: Allowance | None
    #: When its limit was last requested, on the monotonic clock.
    asked_s: float


class RequestRates:
    """Limits the rate of requests of each project. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Ordered by their last request, oldest first.
        self._projects: OrderedDict[str, _Project] = OrderedDict()

    def take(self, project_id: str, quota: Callable[[str], Quota]) -> None:
        """Count one request. Raises TooManyRequests if the project's quota, refreshed periodically, is exceeded.

        Errors of `quota` are raised, as the scheduler that it calls is needed for the requests, too.
        """
        found = quota(project_id) if self._is_due(project_id) else None
        with self._lock:
            project = self._projects.get(project_id) if found is None else self._noted(project_id, _limit(found))
            if project is None:  # dropped by a concurrent request
                return
            if project.limit == 0:
                raise TooManyRequests(f"project {project_id} may send no requests: its quota is 0", REFRESH_S)
            if project.allowance is not None and not project.allowance.take(self._clock()):
                raise TooManyRequests(
                    f"project {project_id} sends more than {project.limit} requests per second",
                    project.allowance.wait_s(),
                )

    def _is_due(self, project_id: str) -> bool:
        """Return whether to request the limit of a project; concurrent requests use the last one meanwhile."""
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
    """Limits the concurrent requests of projects, and those that wait for changes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def taken(self, project_id: str, wait_s: float) -> Iterator[float]:
        """Yield how long a request may wait: `wait_s`, or 0 if too many requests wait.

        Raises TooManyRequests if most threads are busy, many of them with requests of the project that do not wait.
        """
        with self._lock:
            mine = self._waiting if wait_s > 0 and self._may_wait(project_id) else self._under_way
            # A request without a project is an operator's, and is not limited.
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
