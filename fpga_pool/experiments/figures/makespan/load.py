"""Figure 4: makespan over the number of jobs in a batch (section 5.3)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.planners import OURS, curves, makespans
from fpga_pool.experiments.figures.makespan.workload import PAPERS_OWN, TITLES, Form, Shape, batch

_WHERE = "section 5.3"
#: "2000 requester hosts and 300 responder hosts"; the numbers of jobs are not in the text.
JOBS = (2000, 5000, 10_000, 15_000, 20_000)
REQUESTERS, RESPONDERS = 2000, 300


@dataclass(frozen=True, slots=True)
class Case:
    """One number of jobs."""

    form: Form
    jobs: int


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(form, jobs) for form in Form for jobs in settings.thinned(JOBS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy."""
    shape = Shape(jobs=case.jobs, requesters=REQUESTERS, responders=RESPONDERS).scaled(settings)
    problem = batch(case.form, shape, seed)
    yield from makespans(case.form, case.jobs, curves(PAPERS_OWN[case.form], settings), problem, seed)


def claims(samples: Samples) -> list[Claim]:
    """Return what section 5.3 says."""
    return [_linear(samples, form) for form in Form]


def _linear(samples: Samples, form: Form) -> Claim:
    why = (
        "Below some 10 jobs per accelerator the longest job decides, and a good plan is not longer with more of them."
        if form is Form.COMPUTE
        else ""
    )
    return Claim(
        key=f"{form}-linear",
        text=f"{TITLES[form]}: almost linear in the number of jobs; correlation",
        where=_WHERE,
        paper="almost 1",
        ours={name: _correlation(samples, form, name) for name in ("sjf", PAPERS_OWN[form], OURS)},
        unit="",
        why=why,
    )


def _correlation(samples: Samples, panel: str, series: str) -> float:
    places = samples.places(panel, series)
    means = [samples.mean(panel, series, x) for x in places]
    return float(np.corrcoef([float(x) for x in places], means)[0, 1])


EXPERIMENT = Experiment(
    number=4, title="makespan over the number of jobs, 2000 requesters, 300 responders", where=_WHERE,
    panels=tuple(Panel(key=form, title=TITLES[form], x_label="jobs") for form in Form),
    cases=cases, measure=measure, claims=claims,
)  # fmt: skip
