"""The most benefit that any policy can expect which does not know the jobs to come, only how likely each is.

A dynamic programme over what a card does and who waits for it.  Time counts in intervals: one job comes at the end of
each, of any function alike, and works as long as one interval and waits as long as one; a load takes some.  Then
nothing is learned between two arrivals, and whatever is begun there can as well be begun at the arrival before: only
whole times are looked at.

What is left out makes it more: the shared DMA, and which of several jobs a slot loads for (all of a function wait
beyond their patience while one does).  A preemptible job that gives way to a load is counted to its end.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fpga_pool.core.benefit.occupancy import EMPTY
from fpga_pool.core.benefit.pool import OnlinePool


class _Loading(NamedTuple):
    """What the configuration port does, and for how many intervals more."""

    kind: int
    function: int
    left: int


class _Waiting(NamedTuple):
    """A job, and how many intervals ago it came."""

    function: int
    age: int


class _State(NamedTuple):
    """A card at an arrival: by kind what its slots hold that do not load, sorted; and who waits, longest first."""

    holds: tuple[tuple[int, ...], ...]
    loading: _Loading | None
    waiting: tuple[_Waiting, ...]


class Unforeseen:
    """What can be expected of one card."""

    def __init__(self, pool: OnlinePool, interval_s: float) -> None:
        """Take a card and the seconds between jobs, which are also those of each job's work and patience."""
        if len(pool.dma_bps) != 1:
            raise ValueError(f"pool: expected one card, found {len(pool.dma_bps)}")
        loads = pool.load_s / interval_s
        # Where kinds of slots take different times, a job may wait as long as the longest load, for another one.
        if loads[0] < 1 or (loads != np.round(loads[0])).any():
            raise ValueError(
                f"load_s: expected as many whole intervals of {interval_s:g} s, found {pool.load_s.tolist()}"
            )
        self._speedup: list[float] = pool.speedup.tolist()
        self._preemptible: list[bool] = pool.preemptible.tolist()
        self._load = int(loads[0])
        self._fits: list[list[int]] = [np.flatnonzero(fits).tolist() for fits in pool.fits]
        self._slots = np.bincount(pool.slot_kind, minlength=len(pool.load_s)).tolist()
        self._known: dict[tuple[int, _State], float] = {}

    @cached_property
    def _empty(self) -> _State:
        return _State(tuple((EMPTY,) * slots for slots in self._slots), None, ())

    def most_vcpus(self, jobs: int) -> float:
        """Return the mean benefit of the best policy, from empty slots until the last of so many jobs comes."""
        return self._best(jobs, self._empty) / jobs if jobs else 0.0

    def _best(self, left: int, state: _State) -> float:
        """Return what the best decisions gain in the intervals that are left; a whole one gains the speedup."""
        return max(gained + self._mean(left - 1, following) for gained, following in self._moves(state))

    def _mean(self, left: int, state: _State) -> float:
        """Return the mean of what is gained from the next arrival on, before it is known who comes."""
        if left == 0:
            return 0.0
        if (found := self._known.get((left, state))) is None:
            come = (_Waiting(function, 0) for function in range(len(self._speedup)))
            gained = [self._best(left, state._replace(waiting=(*state.waiting, job))) for job in come]
            found = self._known[left, state] = sum(gained) / len(gained)
        return found

    def _moves(self, state: _State) -> Iterator[tuple[float, _State]]:
        """Yield what one interval gains, and what it leads to, for each thing the configuration port may do in it."""
        yield self._passes(state.holds, None, state.loading, state.waiting)
        if state.loading is not None:
            return
        for kind, held in enumerate(state.holds):
            for given_up in set(held):
                rest = list(held)
                rest.remove(given_up)
                holds = (*state.holds[:kind], tuple(rest), *state.holds[kind + 1 :])
                runs_on = given_up if given_up != EMPTY and self._preemptible[given_up] else None
                for function in self._fits[kind]:
                    if function != given_up:
                        loading = _Loading(kind, function, self._load)
                        yield self._passes(holds, runs_on, loading, state.waiting)

    def _passes(
        self,
        holds: tuple[tuple[int, ...], ...],
        runs_on: int | None,
        loading: _Loading | None,
        waiting: tuple[_Waiting, ...],
    ) -> tuple[float, _State]:
        """Let all slots run what they can for one interval, the jobs that came first first."""
        free = Counter(function for held in holds for function in held)
        if runs_on is not None:
            free[runs_on] += 1
        gained, stays = 0.0, []
        for job in waiting:
            if free[job.function]:
                free[job.function] -= 1
                gained += self._speedup[job.function]
            elif job.age == 0 or (loading is not None and loading.function == job.function):
                stays.append(_Waiting(job.function, job.age + 1))
        if loading is not None:
            kind, function, left = loading
            loading = loading._replace(left=left - 1) if left > 1 else None
            if loading is None:
                holds = (*holds[:kind], tuple(sorted((*holds[kind], function))), *holds[kind + 1 :])
        return gained, _State(holds, loading, tuple(stays))
