"""Figures 6 and 7: batches of mixed types (section 5.5); average completion time against makespan (section 5.6)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchPlan, BatchProblem, Ints
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan import workload

# ---- Figure 6

_OWN, _WHERE = "waves", "section 5.5"
#: Percent of computation-intensive jobs.  The paper's patterns are not in its text.
SHARES = (0, 20, 40, 60, 80, 100)
#: What the other jobs are, by panel.
_OTHERS = {"network": (workload.Form.NETWORK,), "network-and-both": (workload.Form.NETWORK, workload.Form.JOINT)}


def forms(panel: str, percent: int, jobs: int, seed: int) -> NDArray[np.str_]:
    """Return the form of each job (J,): exact shares, in their own order."""
    computing = round(jobs * percent / 100)
    others = np.resize(np.array(_OTHERS[panel]), jobs - computing)
    of_jobs: NDArray[np.str_] = np.append(np.full(computing, workload.Form.COMPUTE), others)
    np.random.default_rng((seed, 6)).shuffle(of_jobs)
    return of_jobs


def _measure(panel: str, percent: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy."""
    shape = workload.Shape().scaled(settings)
    problem = workload.mixed(workload.draw(shape, seed), forms(panel, percent, shape.jobs, seed))
    yield from workload.makespans(panel, percent, workload.curves(_OWN, settings), problem, seed)


def _gap(samples: Samples, panel: str) -> Claim:
    """Return what section 5.5 says."""
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
            for name in (_OWN, workload.OURS)
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
    places=dict.fromkeys(_OTHERS, SHARES),
    measure=_measure,
    claims=lambda samples: [_gap(samples, panel) for panel in _OTHERS],
)


# ---- Figure 7

_FAIRNESS_OWN, _FAIRNESS_WHERE = "nim", "section 5.6"
GROUPS = (1, 2, 3, 4, 6, 8, 10)
#: The paper's own number.
_PAPERS_GROUPS = 6
_AVERAGE, _LAST = "average", "last"


def grouped(problem: BatchProblem, groups: int) -> BatchProblem:
    """Return the batch divided into groups of equal number by size, the smallest jobs first."""
    group: Ints = np.zeros(problem.jobs, np.int64)
    for number, jobs in enumerate(np.array_split(np.argsort(problem.input_bytes, kind="stable"), groups)):
        group[jobs] = number
    return replace(problem, group=group)


def _average_s(problem: BatchProblem, plan: BatchPlan) -> float:
    """Return the average job completion time."""
    return float((plan.start_s + problem.seconds[np.arange(problem.jobs), plan.accelerator]).mean())


def _measure_fairness(_: str, groups: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one network-intensive batch by each policy; the baselines know no groups."""
    plain = workload.batch(workload.Form.NETWORK, workload.Shape().scaled(settings), seed)
    for name in workload.curves(_FAIRNESS_OWN, settings):
        problem = plain if name in workload.BASELINES else grouped(plain, groups)
        plan = workload.decide(name, problem, seed)
        yield Sample(_LAST, groups, name, seed, plan.makespan_s)
        yield Sample(_AVERAGE, groups, name, seed, _average_s(problem, plan))


def _fairness_claims(samples: Samples) -> list[Claim]:
    """Return what section 5.6 says."""
    places, names = samples.places(_LAST, _FAIRNESS_OWN), (_FAIRNESS_OWN, workload.OURS)
    found = [
        Claim(
            key="groups-lower-the-average",
            text="more groups, less average completion time: with the most groups over that with one",
            where=_FAIRNESS_WHERE,
            paper="< 1",
            ours={n: samples.mean(_AVERAGE, n, places[-1]) / samples.mean(_AVERAGE, n, 1) for n in names},
            unit="x",
        ),
        Claim(
            key="groups-cost-makespan",
            text="at the cost of slightly larger makespan: with the most groups over that with one",
            where=_FAIRNESS_WHERE,
            paper="slightly > 1",
            ours={n: samples.mean(_LAST, n, places[-1]) / samples.mean(_LAST, n, 1) for n in names},
            unit="x",
        ),
    ]
    if _PAPERS_GROUPS in places:
        six = _PAPERS_GROUPS
        found += [
            Claim(
                key="six-groups-average",
                text="with 6 groups almost the average of SJF: average over that of SJF",
                where=_FAIRNESS_WHERE,
                paper="about 1",
                ours={n: samples.mean(_AVERAGE, n, six) / samples.mean(_AVERAGE, "sjf", six) for n in names},
                unit="x",
            ),
            Claim(
                key="six-groups-makespan",
                text="with 6 groups still an improvement of makespan over SJF",
                where=_FAIRNESS_WHERE,
                paper="7.2 %",
                ours={n: samples.improvement_percent(_LAST, n, "sjf", six) for n in names},
            ),
        ]
    return found


FAIRNESS_EXPERIMENT = Experiment(
    number=7,
    title="average completion time against makespan, network-intensive",
    where=_FAIRNESS_WHERE,
    panels=(
        Panel(key=_LAST, title="makespan", x_label="groups by size"),
        Panel(key=_AVERAGE, title="average job completion time", x_label="groups by size", y_label="AJCT, s"),
    ),
    places={_LAST: GROUPS},
    measure=_measure_fairness,
    claims=_fairness_claims,
)
