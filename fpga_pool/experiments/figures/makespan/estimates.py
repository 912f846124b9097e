"""Figure 8: compute times that were estimated wrongly (section 5.7)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fpga_pool.core.types import BatchProblem
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan.planners import OURS, curves
from fpga_pool.experiments.figures.makespan.reality import makespan_s
from fpga_pool.experiments.figures.makespan.workload import SECONDS_PER_MB, Form, Shape, batch, draw

_OWN, _PANEL, _WHERE = "cim", "estimates", "section 5.7"
#: The largest error, percent of what the size says.
ERRORS = (0, 5, 10, 15, 20, 25, 30)
RESPONDERS = 40


def cases(settings: Settings) -> list[int]:
    """Return the largest errors."""
    return settings.thinned(ERRORS)


def estimated(actual: BatchProblem, percent: int, shape: Shape, seed: int) -> BatchProblem:
    """Return the batch as it is believed to be: an error per job in proportion to its input, on all accelerators."""
    ratio = np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, shape.jobs) * percent / 100
    error_s = ratio * SECONDS_PER_MB * draw(shape, seed).megabits
    return replace(actual, seconds=np.maximum(actual.seconds + error_s[:, None], 0.0))


def measure(case: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Let each policy plan on the estimates, and count what really comes of it."""
    shape = Shape(responders=RESPONDERS).scaled(settings)
    actual = batch(Form.COMPUTE, shape, seed)
    believed = estimated(actual, case, shape, seed)
    for name in curves(_OWN, settings):
        yield Sample(_PANEL, case, name, seed, makespan_s(name, believed, actual, seed))


def claims(samples: Samples) -> list[Claim]:
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
            paper="not given",
            ours={name: samples.improvement_percent(_PANEL, name, "sjf", last) for name in (_OWN, OURS)},
        ),
    ]


EXPERIMENT = Experiment(
    number=8,
    title="wrong estimates, computation-intensive, 1000 jobs, 40 responders",
    where=_WHERE,
    panels=(Panel(key=_PANEL, title="makespan with the actual times", x_label="largest error, %"),),
    cases=cases,
    measure=measure,
    claims=claims,
)
