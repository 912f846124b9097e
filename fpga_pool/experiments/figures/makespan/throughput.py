"""Figure 5: throughput over the rate at which batches arrive (section 5.4).

A policy plans a batch when it arrives, without knowledge of later ones (section 3.4).  The paper's own policies and its
baselines do so inherently when all batches form one problem with release times.  Others change the plan under way: with
their own `replan` or, without one, by placing each job of a new batch behind it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.fluid import Segments, no_segments
from fpga_pool.core.makespan.replan import Replan, ReplanParams, replan
from fpga_pool.core.makespan.underway import Underway, underway_at
from fpga_pool.core.policy import Replanning
from fpga_pool.core.types import BatchPlan, BatchProblem, Ints
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.workload import (
    BASELINES,
    OURS,
    PAPERS_OWN,
    TITLES,
    Form,
    Shape,
    batch,
    curves,
    decide,
    planner,
)

# ---- Batches that arrive

#: Policies that consider jobs in order of release, so that all batches can form one problem.
_IN_TIME_ORDER = frozenset({"sjf", "ljf", "cim", "nim", "ncjm", "waves"})


def makespan_s(name: str, problem: BatchProblem, seed: int) -> float:
    """Return the completion time of the last job; jobs with the same release time form a batch."""
    if name in _IN_TIME_ORDER:
        return decide(name, problem, seed).makespan_s
    return _Course(problem).makespan_s(_replanner(name, seed))


def _replanner(name: str, seed: int) -> Callable[[Underway], Replan]:
    policy = planner(name)
    rng = np.random.default_rng(seed)

    def replanned(underway: Underway) -> Replan:
        found = policy.replan(underway, None, rng) if isinstance(policy, Replanning) else None
        return found or replan(underway, ReplanParams(effort=0))

    return replanned


class _Course:
    """The current plan, on one clock, and its changes as batches arrive."""

    def __init__(self, problem: BatchProblem) -> None:
        self._problem = problem
        self._accelerator = np.zeros(problem.jobs, np.int64)
        self._start_s = np.zeros(problem.jobs)
        self._transfers = no_segments()

    def makespan_s(self, replanned: Callable[[Underway], Replan]) -> float:
        """Let all batches arrive; return the completion time of the last job."""
        problem = self._problem
        for now_s in np.unique(problem.release_s).tolist():
            known = np.flatnonzero(problem.release_s <= now_s)
            arrived = np.flatnonzero(problem.release_s[known] == now_s)
            underway, left = underway_at(problem.only(known), self._plan(known), now_s, arrived=arrived.tolist())
            self._take(known[left], replanned(underway).plan, now_s)
        ends_s = self._start_s + problem.seconds[np.arange(problem.jobs), self._accelerator]
        return float(ends_s.max(initial=0.0))

    def _plan(self, known: Ints) -> BatchPlan:
        """Return the current plan of the jobs `known` (n,), renumbered by their position there."""
        transfers = self._transfers
        return BatchPlan(
            accelerator=self._accelerator[known],
            start_s=self._start_s[known],
            segment_job=np.searchsorted(known, transfers.flow),
            segment_begin_s=transfers.begin_s,
            segment_end_s=transfers.end_s,
            segment_bps=transfers.bps,
            makespan_s=0.0,
            lower_bound_s=0.0,
        )

    def _take(self, jobs: Ints, plan: BatchPlan, now_s: float) -> None:
        """Replace the current plan of `jobs` (n,) by another one, whose time 0 is `now_s`."""
        self._accelerator[jobs] = plan.accelerator
        self._start_s[jobs] = plan.start_s + now_s
        kept = ~np.isin(self._transfers.flow, jobs)
        columns = zip(
            (self._transfers.flow, self._transfers.begin_s, self._transfers.end_s, self._transfers.bps),
            (jobs[plan.segment_job], plan.segment_begin_s + now_s, plan.segment_end_s + now_s, plan.segment_bps),
            strict=True,
        )
        flow, *rest = (np.append(before[kept], new) for before, new in columns)
        self._transfers = Segments(flow, *rest)


# ---- The figure

_WHERE = "section 5.4"
#: Batches per second, evenly spaced.  The text names 4.
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
#: Not in the paper.  With 200 jobs per batch, 150 accelerators are busy at 4 batches of computation-intensive jobs per
#: second, the rate at which its system is "fully utilized".
JOBS_PER_BATCH, BATCHES = 200, 20
#: Least and greatest improvement of throughput that the text gives for each form.
_PAPERS = {
    "sjf": {Form.COMPUTE: (22.88, 35.64), Form.NETWORK: (20.17, 36.05), Form.JOINT: (16.47, 27.57)},
    "ljf": {Form.COMPUTE: (32.88, 40.08), Form.NETWORK: (36.23, 45.47), Form.JOINT: (27.06, 36.38)},
}


def arriving(form: Form, per_s: float, seed: int, settings: Settings) -> BatchProblem:
    """Return the batches as one problem, each released when it arrives."""
    shape = Shape(jobs=JOBS_PER_BATCH * BATCHES).scaled(settings)
    number = np.arange(shape.jobs) * BATCHES // shape.jobs
    return replace(batch(form, shape, seed), release_s=number / per_s)


def _measure(form: Form, per_s: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Measure the throughput of each policy with batches that arrive over time."""
    problem = arriving(form, per_s, seed, settings)
    for name in curves(PAPERS_OWN[form], settings):
        yield Sample(form, per_s, name, seed, problem.jobs / makespan_s(name, problem, seed))


def _claims(samples: Samples) -> list[Claim]:
    """Return the claims of section 5.4."""
    return [
        *(_more_than(samples, form, other) for form in Form for other in BASELINES),
        *(_levels_off(samples, form) for form in Form),
    ]


def _more_than(samples: Samples, form: Form, other: str) -> Claim:
    least, most = _PAPERS[other][form]
    ours: dict[str, float] = {}
    for name in (PAPERS_OWN[form], OURS):
        gains = [-samples.improvement_percent(form, name, other, x) for x in samples.places(form, name)]
        ours |= {f"{name} least": min(gains), f"{name} most": max(gains)}
    return Claim(
        key=f"{form}-throughput-over-{other}",
        text=f"{TITLES[form]}: more jobs per second than {other.upper()}, over all rates",
        where=_WHERE,
        paper=f"{least:g} to {most:g} %",
        ours=ours,
        why="At low rates every policy keeps up, and nothing can be gained.",
    )


def _levels_off(samples: Samples, form: Form) -> Claim:
    own = PAPERS_OWN[form]
    *_, last = samples.places(form, own)
    full = next(x for x in samples.places(form, own) if float(x) >= 4.0)
    return Claim(
        key=f"{form}-levels-off",
        text=f"{TITLES[form]}: nothing is gained beyond 4 batches per second; throughput at the highest rate over that",
        where=_WHERE,
        paper="1 (computation-intensive)",
        ours={name: samples.mean(form, name, last) / samples.mean(form, name, full) for name in (own, OURS)},
        unit="x",
    )


EXPERIMENT = Experiment(
    number=5,
    title="throughput over the rate at which batches arrive, 200 requesters, 30 responders",
    where=_WHERE,
    panels=tuple(
        Panel(key=form, title=TITLES[form], x_label=f"batches of {JOBS_PER_BATCH} jobs per second", y_label="jobs/s")
        for form in Form
    ),
    places=dict.fromkeys(Form, RATES),
    measure=_measure,
    claims=_claims,
)
