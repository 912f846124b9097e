"""Figure 6: batches of mixed types (section 5.5)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.planners import OURS, curves, makespans
from fpga_pool.experiments.figures.makespan.workload import Form, Shape, draw, mixed

_OWN, _WHERE = "waves", "section 5.5"
#: Percent of computation-intensive jobs.  The paper's patterns are not in its text.
SHARES = (0, 20, 40, 60, 80, 100)
#: What the other jobs are, by panel.
_OTHERS = {"network": (Form.NETWORK,), "network-and-both": (Form.NETWORK, Form.JOINT)}


@dataclass(frozen=True, slots=True)
class Case:
    """One mixture."""

    panel: str
    percent: int


def cases(settings: Settings) -> list[Case]:
    """Return both panels, place by place."""
    return [Case(panel, percent) for panel in _OTHERS for percent in settings.thinned(SHARES)]


def forms(case: Case, jobs: int, seed: int) -> NDArray[np.str_]:
    """Return the form of each job (J,): exact shares, in an order of their own."""
    computing = round(jobs * case.percent / 100)
    others = np.resize(np.array(_OTHERS[case.panel]), jobs - computing)
    of_jobs: NDArray[np.str_] = np.append(np.full(computing, Form.COMPUTE), others)
    np.random.default_rng((seed, 6)).shuffle(of_jobs)
    return of_jobs


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy."""
    shape = Shape().scaled(settings)
    problem = mixed(draw(shape, seed), forms(case, shape.jobs, seed))
    yield from makespans(case.panel, case.percent, curves(_OWN, settings), problem, seed)


def claims(samples: Samples) -> list[Claim]:
    """Return what section 5.5 says."""
    return [_gap(samples, panel) for panel in _OTHERS]


def _gap(samples: Samples, panel: str) -> Claim:
    places = samples.places(panel, _OWN)
    ends = {"least": places[0], "most": places[-1]}
    return Claim(
        key=f"{panel}-gap-to-sjf",
        text="improvement over SJF grows with the share of computation-intensive jobs; with the least and most of them "
        f"(the others: {' and '.join(_OTHERS[panel])})",
        where=_WHERE,
        paper="grows",
        ours={
            f"{name} {when}": samples.improvement_percent(panel, name, "sjf", x)
            for name in (_OWN, OURS)
            for when, x in ends.items()
        },
        why="" if panel == "network" else "SJF is far from the bound where jobs both move and compute, too.",
    )


EXPERIMENT = Experiment(
    number=6,
    title="mixed types, 1000 jobs, 200 requesters, 30 responders",
    where=_WHERE,
    panels=tuple(
        Panel(key=panel, title=f"the others: {' and '.join(others)}", x_label="% of jobs that only compute")
        for panel, others in _OTHERS.items()
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
