"""Figure 9: how long planning takes (section 5.8)."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.planners import OURS, decide, planner
from fpga_pool.experiments.figures.makespan.workload import PAPERS_OWN, TITLES, Form, Shape, batch

_WHERE = "section 5.8"
REQUESTERS = (50, 100, 200, 300, 400)
_RUNS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One number of requesters."""

    form: Form
    requesters: int


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(form, requesters) for form in Form for requesters in settings.thinned(REQUESTERS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Time the paper's own algorithm and ours on one batch: from memory to memory, the median of three."""
    problem = batch(case.form, Shape(requesters=case.requesters).scaled(settings), seed)
    for name in dict.fromkeys([PAPERS_OWN[case.form], *settings.also, OURS]):
        planner(name)
        times_ms = []
        for _ in range(_RUNS):
            begin_s = time.perf_counter()
            decide(name, problem, seed)
            times_ms.append(1e3 * (time.perf_counter() - begin_s))
        yield Sample(case.form, case.requesters, name, seed, statistics.median(times_ms))


def claims(samples: Samples) -> list[Claim]:
    """Return what section 5.8 says."""
    return [claim for form in Form for claim in _of_form(samples, form)]


def _of_form(samples: Samples, form: Form) -> Iterator[Claim]:
    own = PAPERS_OWN[form]
    first, *_, last = samples.places(form, own)
    mean_ms = {name: samples.mean(form, name, last) for name in (own, OURS)}
    yield Claim(
        key=f"{form}-planning-ms",
        text=f"{TITLES[form]}: planning time at {last:g} requesters",
        where=_WHERE,
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
        where=_WHERE,
        paper="> 1" if grows else "about 1",
        ours={name: mean_ms[name] / samples.mean(form, name, first) for name in mean_ms},
        unit="x",
        why="NIM-OR needs no linear program, so only the simulation of the transfers depends on them." if grows else "",
    )


EXPERIMENT = Experiment(
    number=9,
    title="planning time over the number of requesters, 1000 jobs, 30 responders",
    where=_WHERE,
    panels=tuple(
        Panel(key=form, title=TITLES[form], x_label="requesters", y_label="planning time, ms", log_y=True)
        for form in Form
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
