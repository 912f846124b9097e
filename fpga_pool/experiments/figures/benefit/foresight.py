"""Figure 11, ours: the value of foresight, at an alpha of 1 from empty slots and with loads of 2 s.

Between the benefit of our policy and the clairvoyant optimum lies the highest expected benefit of any policy without
foresight, even one that knows the mix and the intervals.  `Unforeseen` computes it for traces in which every job
arrives when the previous one would end.

It is a dynamic program over the state of a card and its queue.  Time is counted in intervals: one job arrives at the
end of each, with equal probability for each function; it works for one interval and waits for one at most.  A load
takes a whole number of intervals.  So nothing is learned between two arrivals, and any action begun there can as well
begin at the arrival before: only whole times are examined.  Simplifications make the value larger, so it stays an upper
bound: the shared DMA is ignored, a load serves no particular job (all jobs of a function wait beyond their patience
while a slot loads it), and a preemptible job that is evicted by a load is counted to its end.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from fpga_pool.core.benefit.bound import windows
from fpga_pool.core.benefit.exact import optimum
from fpga_pool.core.benefit.occupancy import EMPTY
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.types import floats, ints
from fpga_pool.experiments.figures.benefit.runs import (
    CATALOGUES,
    OURS,
    REPLACING,
    benefit_vcpus,
    card_pool,
    reference_catalogue,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.sim.benefit.trace import Trace

# ---- The highest expected benefit without foresight


class _Loading(NamedTuple):
    """Activity of the configuration port, and its remaining intervals."""

    kind: int
    function: int
    left: int


class _Waiting(NamedTuple):
    """A waiting job, and the number of intervals since its arrival."""

    function: int
    age: int


class _State(NamedTuple):
    """A card at an arrival: by kind the functions in slots not loading, sorted; and the waiting jobs, oldest first."""

    holds: tuple[tuple[int, ...], ...]
    loading: _Loading | None
    waiting: tuple[_Waiting, ...]


class Unforeseen:
    """The highest benefit that can be expected of one card."""

    def __init__(self, pool: OnlinePool, interval_s: float) -> None:
        """Take a card and the seconds between jobs, which are also the work and the patience of each job."""
        if len(pool.dma_bps) != 1:
            raise ValueError(f"pool: expected one card, found {len(pool.dma_bps)}")
        loads = pool.load_s / interval_s
        # With different load times by kind, a job may wait as long as the longest load, and so for another load.
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
        """Return the mean benefit of the best policy, from empty slots until the last of `jobs` jobs arrives."""
        return self._best(jobs, self._empty) / jobs if jobs else 0.0

    def _best(self, left: int, state: _State) -> float:
        """Return the gain of the best decisions in the remaining intervals; a job gains its speedup per interval."""
        return max(gained + self._mean(left - 1, following) for gained, following in self._moves(state))

    def _mean(self, left: int, state: _State) -> float:
        """Return the mean gain from the next arrival on, before the function of the arriving job is known."""
        if left == 0:
            return 0.0
        if (found := self._known.get((left, state))) is None:
            come = (_Waiting(function, 0) for function in range(len(self._speedup)))
            gained = [self._best(left, state._replace(waiting=(*state.waiting, job))) for job in come]
            found = self._known[left, state] = sum(gained) / len(gained)
        return found

    def _moves(self, state: _State) -> Iterator[tuple[float, _State]]:
        """Yield the gain of one interval and the following state, for each action of the configuration port."""
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
        """Run jobs on all slots for one interval, the oldest first; return the gain and the following state."""
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


# ---- The figure

#: Numbers of jobs, which arrive once per second and work for one second.
JOBS = (4, 5, 6)
INTERVAL_S, LOAD_S = 1.0, 2.0
#: Number of first jobs of a trace that take all combinations of functions, with a scale of 1.
FREE_JOBS = 4
#: Curves of the best schedule that knows all jobs, and of the best policy that knows only the probability of each.
CLAIRVOYANT, UNFORESEEN = "clairvoyant optimum", "most without foresight"


def measure(catalogue: str, count: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate a seed's traces of `count` jobs under two policies, and find the optimum of each; yield the means."""
    functions = len(_pool(catalogue).functions)
    gained = [
        _gained(catalogue, tuple(jobs.function[:-1].tolist()))
        for jobs in traces(count, functions, seed, settings.scaled(FREE_JOBS))
    ]
    found = dict(zip((REPLACING, OURS, CLAIRVOYANT), np.mean(gained, axis=0).tolist(), strict=True))
    found[UNFORESEEN] = _unforeseen(catalogue).most_vcpus(count)
    for name, value in found.items():
        yield Sample(catalogue, count, name, seed, value)


@cache
def _gained(catalogue: str, functions: tuple[int, ...]) -> tuple[float, float, float]:
    """Return the benefit of the two policies and of the optimum on a trace with these functions and one more job.

    Benefit counts until the last job arrives, so its function makes no difference.
    """
    pool, jobs = _pool(catalogue), _trace((*functions, 0))
    window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
    best = optimum(pool, window, jobs.last_arrival_s, step_s=INTERVAL_S, time_limit_s=60.0)
    return benefit_vcpus(pool, jobs, REPLACING), benefit_vcpus(pool, jobs, OURS), best.reached_vcpus


def traces(jobs: int, functions: int, seed: int, free: int = FREE_JOBS) -> Iterator[Trace]:
    """Yield traces of `jobs` jobs that represent all possible traces as evenly as possible.

    The first `free` jobs take all combinations of functions.  The later ones follow from these and the seed, such that
    each function is equally frequent at each position, whatever another job is.  With one more job than `free`, as many
    seeds as there are functions yield all possible traces.
    """
    signs = np.array([1, -1] * free)
    for first in product(range(functions), repeat=min(jobs, free)):
        later = [
            (int(np.dot(signs[: len(first)] ** place, first)) + seed // functions**place) % functions
            for place in range(jobs - len(first))
        ]
        yield _trace((*first, *later))


def _trace(functions: Sequence[int]) -> Trace:
    """Return a trace with one job of each of these functions, in this order."""
    jobs = len(functions)
    return Trace(
        jobs=tuple(f"j{number}" for number in range(jobs)),
        function=ints(functions),
        arrival_s=floats(INTERVAL_S * np.arange(1, jobs + 1)),
        work_s=np.full(jobs, INTERVAL_S),
        patience_s=np.full(jobs, INTERVAL_S),
    )


def _claim(samples: Samples, catalogue: str) -> Claim:
    """Return the share of the optimum that can be expected without foresight, and our policy's share of that."""
    ours = {}
    for jobs in samples.places(catalogue, OURS):
        most, by_us = (samples.mean(catalogue, name, jobs) for name in (UNFORESEEN, OURS))
        ours[f"{UNFORESEEN}, {jobs} jobs"] = 100 * most / samples.mean(catalogue, CLAIRVOYANT, jobs)
        ours[f"{OURS} of that, {jobs} jobs"] = 100 * by_us / most
    return Claim(
        key=f"{catalogue}-worth-of-foresight",
        text=f"catalogue {catalogue.upper()}, alpha 1, loads of {LOAD_S:g} s: mean share of the clairvoyant optimum",
        ours=ours,
        why="A load that is right only if its function is asked for has to begin before that is known.",
    )


@cache
def _pool(catalogue: str) -> OnlinePool:
    return card_pool(reference_catalogue(catalogue), LOAD_S)


@cache
def _unforeseen(catalogue: str) -> Unforeseen:
    return Unforeseen(_pool(catalogue), INTERVAL_S)


EXPERIMENT = Experiment(
    number=11,
    title="what foresight is worth, by how many jobs come",
    where="ours",
    panels=tuple(
        Panel(key=name, title=f"catalogue {name.upper()}", x_label="jobs", y_label="benefit, vCPUs")
        for name in CATALOGUES
    ),
    places=dict.fromkeys(CATALOGUES, JOBS),
    measure=measure,
    claims=lambda samples: [_claim(samples, catalogue) for catalogue in CATALOGUES],
)
