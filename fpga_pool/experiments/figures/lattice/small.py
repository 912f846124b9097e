"""Figure 5, ours: completion time over the optimum of a few tasks, which `exact` proves."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.core.integer import ExactParams
from fpga_pool.core.lattice.exact import Exact
from fpga_pool.core.lattice.tasks import Links, TaskProblem, Topology
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.lattice.runs import OURS, PAPERS, scheduled_s

TASKS = (5, 7, 9)
ENCLOSURES, FPGAS, MEAN_S = 2, 4, 10.0
PANEL = "small"
#: An optimum is found when no schedule is shorter by more than this share; nodes after which it is given up.
GAP, NODES = 0.01, 300
#: Share of the problems whose optimum was found.
SOLVED = "share solved"


def few_tasks(tasks: int, seed: int) -> TaskProblem:
    """Return tasks of 1 to 4 FPGAs in a line, exponential times, on rings of 4."""
    rng = np.random.default_rng((seed, tasks))
    return TaskProblem(
        enclosure_fpgas=np.full(ENCLOSURES, FPGAS),
        enclosure_links=np.full(ENCLOSURES, Topology.RING),
        shape_begin=np.arange(tasks + 1),
        shape_fpgas=rng.integers(1, FPGAS + 1, tasks),
        shape_seconds=rng.exponential(MEAN_S, tasks),
        links=np.full(tasks, Links.LINE),
    )


def measure(tasks: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy, if its optimum is found."""
    problem = few_tasks(tasks, seed)
    best = Exact(ExactParams(effort=NODES, gap=GAP)).decide(problem, None, 0.0, np.random.default_rng(seed))
    solved = best.bound_tight_s >= best.wct_s * (1 - 1.01 * GAP)
    yield Sample(PANEL, tasks, SOLVED, seed, float(solved))
    if solved:
        for name in dict.fromkeys((OURS, *PAPERS, *settings.also)):
            yield Sample(PANEL, tasks, name, seed, scheduled_s(name, problem, seed, settings) / best.wct_s)


def claims(samples: Samples) -> list[Claim]:
    """Return how far each policy is from the optimum."""
    if OURS not in samples.series(PANEL):
        return []
    ours = {
        name: float(np.mean([samples.mean(PANEL, name, x) for x in samples.places(PANEL, name)]))
        for name in samples.series(PANEL)
        if name != SOLVED
    }
    text = "few tasks: mean completion time over the proven optimum, all numbers"
    return [Claim(key="over-optimum", text=text, where="ours", paper="not given", ours=ours, unit="")]


EXPERIMENT = Experiment(
    number=5,
    title="completion time over the optimum of a few tasks",
    where="ours",
    panels=(Panel(key=PANEL, title="2 rings of 4", x_label="tasks", y_label="over the optimum", least_y=1.0),),
    cases=lambda settings: settings.thinned(TASKS),
    measure=measure,
    claims=claims,
)
