"""Figure 5, ours: completion time over the optimum of a few tasks; and what all figures of tasks share."""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from fpga_pool.conf.policies import policy_as, policy_names
from fpga_pool.core.integer import ExactParams
from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.exact import Exact
from fpga_pool.core.lattice.listing import misfit
from fpga_pool.core.lattice.tasks import Links, TaskProblem, Topology
from fpga_pool.core.policy import Searching, TaskPolicy
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings, X
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.lattice.workloads import Wanted, generate

# ---- Shared by all figures

OURS, RANKING = "lattice_plus", "lattice"
#: The paper's, with HEFT in both readings.
PAPERS = (RANKING, "heft", "heft_shortest", "fifo", "mfit")
BOUND, PAPER_BOUND = "bound", "bound_paper"
#: Units of work that ours may search for each problem of full size, a second or so.
_EFFORT = 1000

SYNTHETIC = "Tasks are synthetic: the paper publishes none."
STRICT = "Ours lets nobody overtake, as figure 1 of the paper has it; the paper's FIFO probably does not stall so."


def shares(panel: str, x: X, model: str, wanted: Wanted, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by every policy; yield shares of the paper's bound, and what the tight one leaves of it."""
    problem = generate(model, wanted, np.random.default_rng(seed)).problem
    if misfit(problem) is not None:
        raise InvalidInput(f"model {model}: a task fits in no enclosure")
    bound_s = paper_bound_s(problem)
    installed = policy_names("task")
    for name in dict.fromkeys((OURS, *PAPERS, *settings.also)):
        if name in installed:
            yield Sample(panel, x, name, seed, 100.0 * bound_s / scheduled_s(name, problem, seed, settings))
    yield Sample(panel, x, BOUND, seed, 100.0 * bound_s / tight_bound_s(problem))
    yield Sample(panel, x, PAPER_BOUND, seed, 100.0)


def scheduled_s(name: str, problem: TaskProblem, seed: int, settings: Settings) -> float:
    """Return the completion time of the schedule that a policy makes."""
    policy: TaskPolicy = policy_as("task", name)
    if isinstance(policy, Searching):
        policy = policy.searching(settings.scaled(_EFFORT), None, time.perf_counter)
    return policy.decide(problem, None, 0.0, np.random.default_rng(seed)).wct_s


def at(samples: Samples, panel: str, name: str, x: float) -> float:
    """Return the mean share at the place next to `x`."""
    places = [float(place) for place in samples.places(panel, name)]
    return samples.mean(panel, name, min(places, key=lambda place: abs(place - x)))


def drawn(samples: Samples, panel: str, names: Sequence[str]) -> list[str]:
    """Return those of the policies that were drawn."""
    return [name for name in names if name in samples.series(panel)]


def range_of(samples: Samples, panel: str, names: Sequence[str], *, from_x: float = 0.0) -> dict[str, float]:
    """Return the least and the greatest mean share of each policy over the places from `from_x` on."""
    found: dict[str, float] = {}
    for name in drawn(samples, panel, names):
        means = [samples.mean(panel, name, x) for x in samples.places(panel, name) if float(x) >= from_x]
        found |= {f"{name} least": min(means), f"{name} most": max(means)}
    return found


def ours_claims(samples: Samples, panels: Sequence[tuple[str, str]]) -> Iterator[Claim]:
    """Yield what is said of our policy where it is installed, panel by panel."""
    for panel, title in panels:
        if OURS not in samples.series(panel):
            continue
        places = samples.places(panel, OURS)
        others = [name for name in samples.series(panel) if name not in (OURS, BOUND, PAPER_BOUND)]
        ahead = [
            value - max(samples.values(panel, name, x)[seed] for name in others)
            for x in places
            for seed, value in samples.values(panel, OURS, x).items()
        ]
        yield Claim(
            key=f"{panel}-ahead", text=f"{title}: ours ahead of the best of all others, problem by problem",
            where="ours", paper="0 or more", ours={"least": min(ahead), "mean": float(np.mean(ahead))}, unit="points",
        )  # fmt: skip
        tight = [100.0 * samples.ratio(panel, OURS, BOUND, x) for x in places]
        yield Claim(
            key=f"{panel}-of-tight", text=f"{title}: ours, share of the tight bound", where="ours", paper="",
            ours={"least mean": min(tight), "mean": float(np.mean(tight))},
        )  # fmt: skip


# ---- Figure 5

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
