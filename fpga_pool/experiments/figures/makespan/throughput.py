"""Figure 5: jobs per second over the rate at which batches arrive (section 5.4)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.types import BatchProblem
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.arrivals import makespan_s
from fpga_pool.experiments.figures.makespan.planners import BASELINES, OURS, curves
from fpga_pool.experiments.figures.makespan.workload import PAPERS_OWN, TITLES, Form, Shape, batch

_WHERE = "section 5.4"
#: Batches per second, evenly spaced.  The text names 4.
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
#: Not in the paper.  With 200 jobs a batch 150 accelerators are busy at 4 batches of computation-intensive jobs per
#: second, where its system is "fully utilized".
JOBS_PER_BATCH, BATCHES = 200, 20
#: Improvement of throughput, least and most, that the text gives for each form.
_PAPERS = {
    "sjf": {Form.COMPUTE: (22.88, 35.64), Form.NETWORK: (20.17, 36.05), Form.JOINT: (16.47, 27.57)},
    "ljf": {Form.COMPUTE: (32.88, 40.08), Form.NETWORK: (36.23, 45.47), Form.JOINT: (27.06, 36.38)},
}


@dataclass(frozen=True, slots=True)
class Case:
    """One rate."""

    form: Form
    per_s: float


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(form, per_s) for form in Form for per_s in settings.thinned(RATES)]


def arriving(case: Case, seed: int, settings: Settings) -> BatchProblem:
    """Return the batches as one problem, each released when it arrives."""
    shape = Shape(jobs=JOBS_PER_BATCH * BATCHES).scaled(settings)
    number = np.arange(shape.jobs) * BATCHES // shape.jobs
    return replace(batch(case.form, shape, seed), release_s=number / case.per_s)


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Let the batches arrive, under each policy."""
    problem = arriving(case, seed, settings)
    for name in curves(PAPERS_OWN[case.form], settings):
        yield Sample(case.form, case.per_s, name, seed, problem.jobs / makespan_s(name, problem, seed))


def claims(samples: Samples) -> list[Claim]:
    """Return what section 5.4 says."""
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
    cases=cases,
    measure=measure,
    claims=claims,
)
