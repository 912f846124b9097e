"""Figures 6 to 9: mixed types, average completion time, wrong estimates (sections 5.5 to 5.7); planning time (5.8)."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchPlan, BatchProblem, Ints
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.workload import (
    BASELINES,
    OURS,
    PAPERS_OWN,
    SECONDS_PER_MB,
    TITLES,
    Form,
    Shape,
    batch,
    curves,
    decide,
    draw,
    makespan_s,
    makespans,
    mixed,
    planner,
)

# ---- Figure 6

_MIXED_OWN, _MIXED_WHERE = "waves", "section 5.5"
#: Percent of computation-intensive jobs.  The paper's patterns are not in its text.
SHARES = (0, 20, 40, 60, 80, 100)
#: Forms of the other jobs, by panel.
_OTHERS = {"network": (Form.NETWORK,), "network-and-both": (Form.NETWORK, Form.JOINT)}


def forms(panel: str, percent: int, jobs: int, seed: int) -> NDArray[np.str_]:
    """Return the form of each job (J,): exact shares, in random order."""
    computing = round(jobs * percent / 100)
    others = np.resize(np.array(_OTHERS[panel]), jobs - computing)
    of_jobs: NDArray[np.str_] = np.append(np.full(computing, Form.COMPUTE), others)
    np.random.default_rng((seed, 6)).shuffle(of_jobs)
    return of_jobs


def _measure_mixture(panel: str, percent: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one batch by each policy."""
    shape = Shape().scaled(settings)
    problem = mixed(draw(shape, seed), forms(panel, percent, shape.jobs, seed))
    yield from makespans(panel, percent, curves(_MIXED_OWN, settings), problem, seed)


def _gap(samples: Samples, panel: str) -> Claim:
    """Return the claim of section 5.5."""
    places = samples.places(panel, _MIXED_OWN)
    ends = {"least": places[0], "most": places[-1]}
    return Claim(
        key=f"{panel}-gap-to-sjf",
        text="improvement over SJF grows with the share of computation-intensive jobs; with the least and most of them "
        f"(the others: {' and '.join(_OTHERS[panel])})",
        where=_MIXED_WHERE,
        paper="grows",
        ours={
            f"{name} {when}": samples.improvement_percent(panel, name, "sjf", x)
            for name in (_MIXED_OWN, OURS)
            for when, x in ends.items()
        },
        why="" if panel == "network" else "SJF is far from the bound where jobs both move and compute, too.",
    )


MIXTURE_EXPERIMENT = Experiment(
    number=6,
    title="mixed types, 1000 jobs, 200 requesters, 30 responders",
    where=_MIXED_WHERE,
    panels=tuple(
        Panel(key=panel, title=f"the others: {' and '.join(others)}", x_label="% of jobs that only compute")
        for panel, others in _OTHERS.items()
    ),
    places=dict.fromkeys(_OTHERS, SHARES),
    measure=_measure_mixture,
    claims=lambda samples: [_gap(samples, panel) for panel in _OTHERS],
)


# ---- Figure 7

_FAIRNESS_OWN, _FAIRNESS_WHERE = "nim", "section 5.6"
GROUPS = (1, 2, 3, 4, 6, 8, 10)
#: The paper's number of groups.
_PAPERS_GROUPS = 6
_AVERAGE, _LAST = "average", "last"


def grouped(problem: BatchProblem, groups: int) -> BatchProblem:
    """Return the batch divided by size into groups with equal numbers of jobs, the smallest jobs first."""
    group: Ints = np.zeros(problem.jobs, np.int64)
    for number, jobs in enumerate(np.array_split(np.argsort(problem.input_bytes, kind="stable"), groups)):
        group[jobs] = number
    return replace(problem, group=group)


def _average_s(problem: BatchProblem, plan: BatchPlan) -> float:
    """Return the average job completion time."""
    return float((plan.start_s + problem.seconds[np.arange(problem.jobs), plan.accelerator]).mean())


def _measure_fairness(_: str, groups: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Plan one network-intensive batch by each policy; the baselines ignore groups."""
    plain = batch(Form.NETWORK, Shape().scaled(settings), seed)
    for name in curves(_FAIRNESS_OWN, settings):
        problem = plain if name in BASELINES else grouped(plain, groups)
        plan = decide(name, problem, seed)
        yield Sample(_LAST, groups, name, seed, plan.makespan_s)
        yield Sample(_AVERAGE, groups, name, seed, _average_s(problem, plan))


def _fairness_claims(samples: Samples) -> list[Claim]:
    """Return the claims of section 5.6."""
    places, names = samples.places(_LAST, _FAIRNESS_OWN), (_FAIRNESS_OWN, OURS)
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


# ---- Figure 8

_ESTIMATED_OWN, _PANEL, _ESTIMATED_WHERE = "cim", "estimates", "section 5.7"
#: The largest error, in percent of the time that follows from the size.
ERRORS = (0, 5, 10, 15, 20, 25, 30)
RESPONDERS = 40


def estimated(actual: BatchProblem, percent: int, shape: Shape, seed: int) -> BatchProblem:
    """Return the batch with its believed times: an error per job in proportion to its input, on all accelerators."""
    ratio = np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, shape.jobs) * percent / 100
    error_s = ratio * SECONDS_PER_MB * draw(shape, seed).megabits
    return replace(actual, seconds=np.maximum(actual.seconds + error_s[:, None], 0.0))


def _measure_estimates(_: str, percent: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Let each policy plan with the estimates, and yield the actual makespan."""
    shape = Shape(responders=RESPONDERS).scaled(settings)
    actual = batch(Form.COMPUTE, shape, seed)
    believed = estimated(actual, percent, shape, seed)
    for name in curves(_ESTIMATED_OWN, settings):
        yield Sample(_PANEL, percent, name, seed, makespan_s(name, believed, actual, seed))


def _estimates_claims(samples: Samples) -> list[Claim]:
    """Return the claims of section 5.7."""
    names = ("sjf", _ESTIMATED_OWN, OURS)
    first, *_, last = samples.places(_PANEL, _ESTIMATED_OWN)
    return [
        Claim(
            key="estimates-cost",
            text=f"close to the case without error up to 30 %: makespan at {last:g} % over that without",
            where=_ESTIMATED_WHERE,
            paper="close to 1",
            ours={name: samples.mean(_PANEL, name, last) / samples.mean(_PANEL, name, first) for name in names},
            unit="x",
            why="Algorithm 2 fills accelerators to the brim, and errors cancel out only where each has many jobs, not "
            "five as here. In the plan of ours only the longest job is late, if at all.",
        ),
        Claim(
            key="estimates-over-sjf",
            text=f"improvement over SJF at {last:g} %",
            where=_ESTIMATED_WHERE,
            ours={name: samples.improvement_percent(_PANEL, name, "sjf", last) for name in (_ESTIMATED_OWN, OURS)},
        ),
    ]


ESTIMATES_EXPERIMENT = Experiment(
    number=8,
    title="wrong estimates, computation-intensive, 1000 jobs, 40 responders",
    where=_ESTIMATED_WHERE,
    panels=(Panel(key=_PANEL, title="makespan with the actual times", x_label="largest error, %"),),
    places={_PANEL: ERRORS},
    measure=_measure_estimates,
    claims=_estimates_claims,
)


# ---- Figure 9

_PLANNING_TIME_WHERE = "section 5.8"
REQUESTERS = (50, 100, 200, 300, 400)
_RUNS = 3


def _measure_planning_time(form: Form, requesters: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Time the paper's own algorithm and ours on one batch, in memory, as the median of three runs."""
    problem = batch(form, Shape(requesters=requesters).scaled(settings), seed)
    for name in dict.fromkeys([PAPERS_OWN[form], *settings.also, OURS]):
        planner(name)
        times_ms = []
        for _ in range(_RUNS):
            begin_s = time.perf_counter()
            decide(name, problem, seed)
            times_ms.append(1e3 * (time.perf_counter() - begin_s))
        yield Sample(form, requesters, name, seed, statistics.median(times_ms))


def _planning_time_claims(samples: Samples) -> Iterator[Claim]:
    """Yield the claims of section 5.8."""
    for form in Form:
        yield from _of_form(samples, form)


def _of_form(samples: Samples, form: Form) -> Iterator[Claim]:
    own = PAPERS_OWN[form]
    first, *_, last = samples.places(form, own)
    mean_ms = {name: samples.mean(form, name, last) for name in (own, OURS)}
    yield Claim(
        key=f"{form}-planning-ms",
        text=f"{TITLES[form]}: planning time at {last:g} requesters",
        where=_PLANNING_TIME_WHERE,
        paper='"in the micro-second level"',
        ours=mean_ms,
        unit="ms",
        why="To read 150,000 compute times takes 50 microseconds; a linear program of that size cannot be solved in as "
        "many. We read milliseconds.",
    )
    grows = form is Form.NETWORK
    yield Claim(
        key=f"{form}-planning-grows",
        text=f"{TITLES[form]}: {'grows with' if grows else 'almost independent of'} the requesters; last over first",
        where=_PLANNING_TIME_WHERE,
        paper="> 1" if grows else "about 1",
        ours={name: mean_ms[name] / samples.mean(form, name, first) for name in mean_ms},
        unit="x",
        why="NIM-OR needs no linear program, so only the simulation of the transfers depends on them." if grows else "",
    )


PLANNING_TIME_EXPERIMENT = Experiment(
    number=9,
    title="planning time over the number of requesters, 1000 jobs, 30 responders",
    where=_PLANNING_TIME_WHERE,
    panels=tuple(
        Panel(key=form, title=TITLES[form], x_label="requesters", y_label="planning time, ms", log_y=True)
        for form in Form
    ),
    places=dict.fromkeys(Form, REQUESTERS),
    measure=_measure_planning_time,
    claims=_planning_time_claims,
)
