"""Figures 8 and 9: wrong estimates of compute times (section 5.7), and planning time (section 5.8)."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fpga_pool.core.types import BatchProblem
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.workload import (
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
    planner,
)

# ---- Figure 8

_OWN, _PANEL, _WHERE = "cim", "estimates", "section 5.7"
#: The largest error, percent of what the size says.
ERRORS = (0, 5, 10, 15, 20, 25, 30)
RESPONDERS = 40


def estimated(actual: BatchProblem, percent: int, shape: Shape, seed: int) -> BatchProblem:
    """Return the batch as it is believed to be: an error per job in proportion to its input, on all accelerators."""
    ratio = np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, shape.jobs) * percent / 100
    error_s = ratio * SECONDS_PER_MB * draw(shape, seed).megabits
    return replace(actual, seconds=np.maximum(actual.seconds + error_s[:, None], 0.0))


def _measure(_: str, percent: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Let each policy plan on the estimates, and count what really comes of it."""
    shape = Shape(responders=RESPONDERS).scaled(settings)
    actual = batch(Form.COMPUTE, shape, seed)
    believed = estimated(actual, percent, shape, seed)
    for name in curves(_OWN, settings):
        yield Sample(_PANEL, percent, name, seed, makespan_s(name, believed, actual, seed))


def _claims(samples: Samples) -> list[Claim]:
    """Return what section 5.7 says."""
    names = ("sjf", _OWN, OURS)
    first, *_, last = samples.places(_PANEL, _OWN)
    return [
        Claim(
            key="estimates-cost",
            text=f"close to the case without error up to 30 %: makespan at {last:g} % over that without",
            where=_WHERE,
            paper="close to 1",
            ours={name: samples.mean(_PANEL, name, last) / samples.mean(_PANEL, name, first) for name in names},
            unit="x",
            why="Algorithm 2 fills accelerators to the brim, and errors cancel out only where each has many jobs, not "
            "five as here. In the plan of ours only the longest job is late, if at all.",
        ),
        Claim(
            key="estimates-over-sjf",
            text=f"improvement over SJF at {last:g} %",
            where=_WHERE,
            ours={name: samples.improvement_percent(_PANEL, name, "sjf", last) for name in (_OWN, OURS)},
        ),
    ]


EXPERIMENT = Experiment(
    number=8,
    title="wrong estimates, computation-intensive, 1000 jobs, 40 responders",
    where=_WHERE,
    panels=(Panel(key=_PANEL, title="makespan with the actual times", x_label="largest error, %"),),
    places={_PANEL: ERRORS},
    measure=_measure,
    claims=_claims,
)


# ---- Figure 9

_PLANNING_TIME_WHERE = "section 5.8"
REQUESTERS = (50, 100, 200, 300, 400)
_RUNS = 3


def _measure_planning_time(form: Form, requesters: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Time the paper's own algorithm and ours on one batch: from memory to memory, the median of three."""
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
    """Yield what section 5.8 says."""
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
