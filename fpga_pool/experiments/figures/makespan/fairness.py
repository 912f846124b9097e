"""Figure 7: average job completion time against makespan, by groups of size (section 5.6)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fpga_pool.core.types import BatchPlan, BatchProblem, Ints
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.planners import BASELINES, OURS, curves, decide
from fpga_pool.experiments.figures.makespan.workload import Form, Shape, batch

_OWN, _WHERE = "nim", "section 5.6"
GROUPS = (1, 2, 3, 4, 6, 8, 10)
#: The paper's own number.
_PAPERS_GROUPS = 6
_AVERAGE, _LAST = "average", "last"


def cases(settings: Settings) -> list[int]:
    """Return numbers of groups."""
    return settings.thinned(GROUPS)


def grouped(problem: BatchProblem, groups: int) -> BatchProblem:
    """Return the batch divided into groups of equal number by size, the smallest jobs first."""
    group: Ints = np.zeros(problem.jobs, np.int64)
    for number, jobs in enumerate(np.array_split(np.argsort(problem.input_bytes, kind="stable"), groups)):
        group[jobs] = number
    return replace(problem, group=group)


def average_s(problem: BatchProblem, plan: BatchPlan) -> float:
    """Return the average job completion time."""
    return float((plan.start_s + problem.seconds[np.arange(problem.jobs), plan.accelerator]).mean())


def measure(case: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one network-intensive batch by each policy; the baselines know no groups."""
    plain = batch(Form.NETWORK, Shape().scaled(settings), seed)
    for name in curves(_OWN, settings):
        problem = plain if name in BASELINES else grouped(plain, case)
        plan = decide(name, problem, seed)
        yield Sample(_LAST, case, name, seed, plan.makespan_s)
        yield Sample(_AVERAGE, case, name, seed, average_s(problem, plan))


def claims(samples: Samples) -> list[Claim]:
    """Return what section 5.6 says."""
    places = samples.places(_LAST, _OWN)
    found = [
        Claim(
            key="groups-lower-the-average",
            text="more groups, less average completion time: with the most groups over that with one",
            where=_WHERE,
            paper="< 1",
            ours={n: samples.mean(_AVERAGE, n, places[-1]) / samples.mean(_AVERAGE, n, 1) for n in (_OWN, OURS)},
            unit="x",
        ),
        Claim(
            key="groups-cost-makespan",
            text="at the cost of slightly larger makespan: with the most groups over that with one",
            where=_WHERE,
            paper="slightly > 1",
            ours={n: samples.mean(_LAST, n, places[-1]) / samples.mean(_LAST, n, 1) for n in (_OWN, OURS)},
            unit="x",
        ),
    ]
    if _PAPERS_GROUPS in places:
        six = _PAPERS_GROUPS
        found += [
            Claim(
                key="six-groups-average",
                text="with 6 groups almost the average of SJF: average over that of SJF",
                where=_WHERE,
                paper="about 1",
                ours={n: samples.mean(_AVERAGE, n, six) / samples.mean(_AVERAGE, "sjf", six) for n in (_OWN, OURS)},
                unit="x",
            ),
            Claim(
                key="six-groups-makespan",
                text="with 6 groups still an improvement of makespan over SJF",
                where=_WHERE,
                paper="7.2 %",
                ours={n: samples.improvement_percent(_LAST, n, "sjf", six) for n in (_OWN, OURS)},
            ),
        ]
    return found


EXPERIMENT = Experiment(
    number=7,
    title="average completion time against makespan, network-intensive",
    where=_WHERE,
    panels=(
        Panel(key=_LAST, title="makespan", x_label="groups by size"),
        Panel(key=_AVERAGE, title="average job completion time", x_label="groups by size", y_label="AJCT, s"),
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
