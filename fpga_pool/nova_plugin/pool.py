"""The pool as known to one process of nova-scheduler: a snapshot for all requests, updated on demand.

A circuit breaker suspends queries for a while if the pool has not answered several times in a row.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from oslo_config import cfg
from oslo_log import log as logging

from fpga_pool.conf.catalogue import private_key
from fpga_pool.core.cluster.learned import Floats32
from fpga_pool.core.types import Ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.objects.bitstreams import is_design
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.instance.fitting import Fitting
from fpga_pool.model.rules.instance.observations import Observations
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers
from fpga_pool.nova_plugin.conf import catalogue, unread
from fpga_pool.nova_plugin.follower import PoolFollower
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError, guest_transport

#: Columns: slots in service, busy slots, and slots with a lease; then, by function, slots with a lease that cannot be
#: revoked.  The last column is for functions that are not in the catalogue.
IN_SERVICE, BUSY, LEASED, HELD = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """The load of the hosts of a snapshot; immutable, so threads may share it."""

    providers: Providers
    functions: Sequence[str]
    #: (H, HELD + functions + 1) counts of slots, in the order of the hosts.
    counts: Floats32
    #: Number of hosts that were counted; the rows of others are copied from the previous table.
    counted: int


class LoadTables:
    """Caches the last table; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Loads | None = None

    def of(self, providers: Providers, functions: Sequence[str]) -> Loads:
        """Return the table of a snapshot; `functions` are those of the catalogue."""
        with self._lock:
            last = self._last
            if last is None or last.providers is not providers or last.functions != functions:
                last = self._last = _loads(providers, functions, last)
            return last


def _loads(providers: Providers, functions: Sequence[str], before: Loads | None) -> Loads:
    pool = providers.pool
    # Successive snapshots with the same slots in the same rows share this array.
    if before is not None and before.providers.of_slot is providers.of_slot and before.functions == functions:
        hosts = _changed(before.providers.pool, pool)
        counts = before.counts.copy()
    else:
        hosts = np.arange(len(pool.hosts["name"]))
        counts = np.zeros((len(hosts), HELD + len(functions) + 1), dtype=np.float32)
    if len(hosts):
        counts[hosts] = _counted(pool, functions, hosts)
    return Loads(providers, functions, counts, len(hosts))


def _changed(before: PoolColumns, now: PoolColumns) -> Ints:
    """Return the hosts whose row, or a row of whose slots, has changed."""
    hosts = before.hosts["changed_in"] != now.hosts["changed_in"]
    hosts[now.slot_host[before.slots["changed_in"] != now.slots["changed_in"]]] = True
    return np.flatnonzero(hosts)


def _counted(pool: PoolColumns, functions: Sequence[str], hosts: Ints) -> Floats32:
    """Return the counts of these hosts, which are sorted, shape (hosts, columns)."""
    here = np.zeros(len(pool.hosts["name"]), dtype=bool)
    here[hosts] = True
    rows = np.flatnonzero(here[pool.slot_host])
    host, width = np.searchsorted(hosts, pool.slot_host[rows]), HELD + len(functions) + 1
    lease = pool.slots["lease"][rows]
    leased = lease != pool.numbers.get("", -1)
    held = leased & (pool.slots["revocable"][rows] == 0)
    column = np.full(len(pool.words), width - 1)
    known = [(pool.numbers[name], HELD + place) for place, name in enumerate(functions) if name in pool.numbers]
    for number, place in known:
        column[number] = place
    busy = pool.slots["state"][rows] == pool.numbers.get(SlotState.BUSY, -1)
    of_function = column[pool.slots["function"][rows]]
    parts = ((pool.in_service[rows], IN_SERVICE), (busy, BUSY), (leased, LEASED), (held, of_function[held]))
    cells = np.concatenate([host[mask] * width + place for mask, place in parts])
    counts = np.bincount(cells, minlength=len(hosts) * width).astype(np.float32)
    return counts.reshape(len(hosts), width)


# ---- The pool

LOG = logging.getLogger(__name__)


class Breaker:
    """Circuit breaker: after the pause one query is let through, and its result decides.  Thread-safe."""

    def __init__(self, failures: int, reset_s: float, clock: Callable[[], float]) -> None:
        self._most, self._reset_s, self._clock = failures, reset_s, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._failed_at = 0.0

    def closed(self) -> bool:
        """Return whether to query now."""
        with self._lock:
            if self._failures < self._most:
                return True
            if self._clock() - self._failed_at < self._reset_s:
                return False
            self._failed_at = self._clock()  # concurrent requests wait for this result
            return True

    def note_answer(self) -> None:
        """Record a successful query."""
        with self._lock:
            self._failures = 0

    def note_failure(self) -> None:
        """Record a failed query."""
        with self._lock:
            self._failures += 1
            self._failed_at = self._clock()


#: Number of pairs of function and lifetime for which fitting slots are cached with a snapshot.
_KEPT = 64


#: Successive queries that a request may make: for the slots, and for observations.
_QUERIES = 2

#: Interval at which observations are requested; they are medians and fits that change slowly.
OBSERVE_S = 60.0


class DeclaredRunTimes:
    """Run times declared by the flavors of earlier requests, by function; thread-safe."""

    #: Weight of the newest request in the mean.
    _NEWEST = 0.1

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mean_s: dict[str, float] = {}

    def note(self, function: str, run_time_s: float) -> None:
        """Record the declared run time of a request."""
        with self._lock:
            before_s = self._mean_s.get(function, run_time_s)
            self._mean_s[function] = before_s + self._NEWEST * (run_time_s - before_s)

    def means_s(self) -> Mapping[str, float]:
        """Return the exponentially weighted mean of each function, in seconds."""
        with self._lock:
            return dict(self._mean_s)


class PoolUnknown(Exception):
    """There is no snapshot of the pool that is recent enough for a decision."""


class Picture:
    """A snapshot with cached results computed from it; threads may share it."""

    def __init__(
        self,
        providers: Providers,
        catalogue: Catalogue,
        observations: Observations | None = None,
        declared: "DeclaredRunTimes | None" = None,
        tables: LoadTables | None = None,
    ) -> None:
        """`catalogue` includes the observed time models; `tables` are shared with earlier pictures."""
        self.providers = providers
        self.observations = observations or Observations()
        self.declared = declared or DeclaredRunTimes()
        self.catalogue = catalogue
        self._tables = tables or LoadTables()
        self._fitting: dict[tuple[str, float], Fitting] = {}

    def loads(self) -> Loads:
        """Return the load of the hosts."""
        return self._tables.of(self.providers, tuple(name for name in self.catalogue.functions if not is_design(name)))

    def run_times_s(self) -> Mapping[str, float]:
        """Return the known run times of instances in seconds, by function; declared ones take precedence."""
        return {**self.observations.run_times_s(), **self.declared.means_s()}

    def run_time_s(self, project_id: str, function: str) -> float | None:
        """Return the expected run time of an instance, from instances that have ended; None = unknown."""
        seconds = self.observations.run_time_s(project_id, function)
        # Rounded to two digits, so that projects with similar run times share cached results.
        return None if seconds is None else max(1.0, float(f"{seconds:.1e}"))

    def fitting(self, function: str, stay_s: float) -> Fitting:
        """Return the slots available for a function; raises UnknownFunction if it is not in the catalogue."""
        key = function, stay_s
        found = self._fitting.get(key)
        if found is None:
            if len(self._fitting) >= _KEPT:
                self._fitting.clear()
            found = Fitting(self.providers, self.catalogue, function, stay_s, self.run_times_s())
            self._fitting[key] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the age of a snapshot and on the time that a request waits, in seconds."""

    timeout_s: float
    snapshot_age_s: float
    stale_age_s: float


class Pool:
    """Queries the pool for changes, once for all waiting requests; thread-safe."""

    def __init__(
        self,
        ask: Callable[[], PoolColumns],
        catalogue: Callable[[], Catalogue],
        limits: Limits,
        breaker: Breaker,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[], Observations] = Observations,
    ) -> None:
        self._observe, self._observed_at_s = observe, float("-inf")
        self._observations, self._declared, self._tables = Observations(), DeclaredRunTimes(), LoadTables()
        self._ask, self._read_catalogue, self._limits = ask, catalogue, limits
        self._breaker, self._clock = breaker, clock
        self._asking = threading.Lock()
        self._catalogue: Catalogue | None = None
        self._known: tuple[float, Picture] | None = None

    def now(self) -> Picture:
        """Return a picture at most `snapshot_age_s` old, or at most `stale_age_s` if the pool does not answer.

        Raises PoolUnknown if there is none.  A request that finds another one querying the pool waits for its answer,
        which may take longer than the timeout of one query; if it has waited that long, it does not query itself.
        """
        found = self._younger_than(self._limits.snapshot_age_s)
        if found is not None:
            return found
        came_at = self._clock()
        if not self._asking.acquire(timeout=_QUERIES * self._limits.timeout_s):
            return self._stale("another request is still waiting for the pool")
        try:
            waited_s = self._clock() - came_at
            found = self._younger_than(max(self._limits.snapshot_age_s, waited_s))
            if found is not None:
                return found
            if waited_s >= self._limits.timeout_s:
                return self._stale("the pool did not answer other requests")
            return self._asked()
        finally:
            self._asking.release()

    def knowing(self, function: str) -> Picture:
        """Return a picture as `now` does; for a design that is not yet known, query the pool at once."""
        picture = self.now()
        if function in picture.catalogue.functions or not is_design(function):
            return picture
        if not self._asking.acquire(timeout=self._limits.timeout_s):
            return picture
        try:
            self._observed_at_s = float("-inf")
            return self._asked()
        finally:
            self._asking.release()

    def _asked(self) -> Picture:
        if not self._breaker.closed():
            return self._stale("the pool did not respond recently and is not queried for a while")
        try:
            columns, at = self._ask(), self._clock()
            self._note_observations()
            catalogue = self._catalogue or self._observations.applied_to(self._read_catalogue())
            self._catalogue = catalogue
        except (MessagingError, FpgaPoolError) as error:
            self._breaker.note_failure()
            return self._stale(f"the pool cannot be queried: {error}")
        self._breaker.note_answer()
        before = self._known[1] if self._known else None
        if (
            before is not None
            and before.providers.pool.seen == columns.seen
            and before.providers.pool.ingress == columns.ingress
            and before.observations is self._observations
        ):
            picture = before
        else:
            providers = Providers.of(columns, before.providers if before else None)
            picture = Picture(providers, catalogue, self._observations, self._declared, self._tables)
        self._known = at, picture
        return picture

    def _note_observations(self) -> None:
        """Request observations every `OBSERVE_S` seconds; a failure is only logged, as they are not essential."""
        if self._clock() - self._observed_at_s < OBSERVE_S:
            return
        self._observed_at_s = self._clock()
        try:
            found = self._observe()
        except (MessagingError, FpgaPoolError) as error:
            LOG.warning(
                "the observed run times could not be updated; those of %g s ago, if any, are used: %s", OBSERVE_S, error
            )
            return
        if found != self._observations:
            self._observations, self._catalogue = found, None

    def _younger_than(self, age_s: float) -> Picture | None:
        known = self._known
        return known[1] if known is not None and self._clock() - known[0] < age_s else None

    def _stale(self, why: str) -> Picture:
        found = self._younger_than(self._limits.stale_age_s)
        if found is None:
            raise PoolUnknown(why)
        return found


def _made(conf: cfg.ConfigOpts) -> Pool:
    """Return a `Pool` for a configuration; connections are made at the first query."""
    group = conf.fpga_pool
    for said in unread(conf):
        # Only a warning: the file is Nova's, and without nova-scheduler no server would start.
        LOG.warning("%s", said)

    @cache
    def scheduler() -> SchedulerAPI:
        identity = Identity(Role.NOVA, socket.gethostname(), private_key("[fpga_pool] key", group.key))
        return SchedulerAPI(guest_transport(conf, group.transport_url), identity, group.timeout, any_server=True)

    @cache
    def follower() -> PoolFollower:
        return PoolFollower(scheduler())

    return Pool(
        lambda: follower().now(),
        lambda: catalogue(conf),
        Limits(timeout_s=group.timeout, snapshot_age_s=group.snapshot_age, stale_age_s=group.stale_age),
        Breaker(group.breaker_failures, group.breaker_reset, time.monotonic),
        observe=lambda: scheduler().observations(),
    )


class _OfProcess:
    """The `Pool` of this process; a forked one creates another, as threads and connections do not survive a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._pool: Pool | None = None

    def get(self, conf: cfg.ConfigOpts) -> Pool:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pid, self._pool = os.getpid(), _made(conf)
            return self._pool

    def forget(self) -> None:
        with self._lock:
            self._pool = None


_OF_PROCESS = _OfProcess()


def pool(conf: cfg.ConfigOpts) -> Pool:
    """Return the `Pool` of this process, created at its first use."""
    return _OF_PROCESS.get(conf)


def forget() -> None:
    """Discard the `Pool` of this process, so that the next request creates it again with the current configuration."""
    _OF_PROCESS.forget()
