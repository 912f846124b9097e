"""Figure 11, ours: what it is worth to know the jobs to come, at an alpha of 1 from empty slots and loads of 2 s.

Between ours and the clairvoyant optimum lies the most that any policy can expect without foresight, one that knows the
mix and the intervals included.  It can be worked out where every job comes when the one before it would end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from fpga_pool.core.benefit.bound import windows
from fpga_pool.core.benefit.exact import optimum
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.types import floats, ints
from fpga_pool.experiments.benefit.cases import CATALOGUES, card_pool, reference_catalogue
from fpga_pool.experiments.figures.benefit.runs import OURS, REPLACING, benefit_vcpus
from fpga_pool.experiments.figures.benefit.unforeseen import Unforeseen
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.sim.benefit.trace import Trace

#: Jobs, one a second, each of one second.
JOBS = (4, 5, 6)
INTERVAL_S, LOAD_S = 1.0, 2.0
#: Jobs of a trace that are of any function in turn, with a scale of 1.
FREE_JOBS = 4
#: Who knows all jobs; who knows how likely each is.
CLAIRVOYANT, UNFORESEEN = "clairvoyant optimum", "most without foresight"


@dataclass(frozen=True, slots=True)
class Case:
    """So many jobs for one card of a catalogue."""

    catalogue: str
    jobs: int


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(catalogue, jobs) for catalogue in CATALOGUES for jobs in settings.thinned(JOBS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run a seed's traces by two policies, and find the optimum of each; all are means."""
    pool = _pool(case.catalogue)
    found: dict[str, list[float]] = {REPLACING: [], OURS: [], CLAIRVOYANT: []}
    for jobs in traces(case.jobs, len(pool.functions), seed, settings.scaled(FREE_JOBS)):
        for name in (REPLACING, OURS):
            found[name].append(benefit_vcpus(pool, jobs, name))
        window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
        best = optimum(pool, window, jobs.last_arrival_s, step_s=INTERVAL_S, time_limit_s=60.0)
        found[CLAIRVOYANT].append(best.reached_vcpus)
    found[UNFORESEEN] = [_unforeseen(case.catalogue).most_vcpus(case.jobs)]
    for name, values in found.items():
        yield Sample(case.catalogue, case.jobs, name, seed, float(np.mean(values)))


def traces(jobs: int, functions: int, seed: int, free: int = FREE_JOBS) -> Iterator[Trace]:
    """Yield traces of so many jobs, in which all that may come stand for themselves as far as possible.

    The first `free` jobs are of all functions in turn, those after them as these and the seed say: each function comes
    as often at each place, whatever another job is.  With one more job than `free`, as many seeds as there are
    functions have all traces there are.
    """
    signs = np.array([1, -1] * free)
    for first in product(range(functions), repeat=min(jobs, free)):
        later = [
            (int(np.dot(signs[: len(first)] ** place, first)) + seed // functions**place) % functions
            for place in range(jobs - len(first))
        ]
        yield Trace(
            jobs=tuple(f"j{number}" for number in range(jobs)),
            function=ints([*first, *later]),
            arrival_s=floats(INTERVAL_S * np.arange(1, jobs + 1)),
            work_s=np.full(jobs, INTERVAL_S),
            patience_s=np.full(jobs, INTERVAL_S),
        )


def claims(samples: Samples) -> list[Claim]:
    """Return what part of the optimum can be expected without foresight, and what part of that ours reaches."""
    return [_of_catalogue(samples, catalogue) for catalogue in CATALOGUES]


def _of_catalogue(samples: Samples, catalogue: str) -> Claim:
    ours = {}
    for jobs in samples.places(catalogue, OURS):
        most, by_us = (samples.mean(catalogue, name, jobs) for name in (UNFORESEEN, OURS))
        ours[f"{UNFORESEEN}, {jobs} jobs"] = 100 * most / samples.mean(catalogue, CLAIRVOYANT, jobs)
        ours[f"{OURS} of that, {jobs} jobs"] = 100 * by_us / most
    return Claim(
        key=f"{catalogue}-worth-of-foresight",
        text=f"catalogue {catalogue.upper()}, alpha 1, loads of {LOAD_S:g} s: mean share of the clairvoyant optimum",
        where="ours",
        paper="not given",
        ours=ours,
        why="A load that is right only if its function is asked for has to begin before that is known.",
    )


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
    cases=cases,
    measure=measure,
    claims=claims,
)
