"""The figures of the lattice paper, section VI, with our policy and both bounds added; all tasks are synthetic.

Figures 3 and 4 show the share of the bound over the irregularity and over the number of workloads.  Figure 5, ours,
shows the completion time of a few tasks relative to the optimum.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from fpga_pool.conf.policies import policy_as, policy_names
from fpga_pool.core.integer import ExactParams
from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.exact import Exact
from fpga_pool.core.lattice.listing import misfit
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.core.policy import Searching, TaskPolicy
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings, Stated, X
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.lattice.workloads import Wanted, generate

# ---- Shared by all figures

OURS, RANKING = "lattice_plus", "lattice"
#: The paper's policies, with HEFT in both readings.
PAPERS = (RANKING, "heft", "heft_shortest", "fifo", "mfit")
BOUND, PAPER_BOUND = "bound", "bound_paper"
#: Units of work that our policy may search for each problem of full size: about a second.
_EFFORT = 1000

SYNTHETIC = "Tasks are synthetic: the paper publishes none."
STRICT = "Ours lets nobody overtake, as figure 1 of the paper has it; the paper's FIFO probably does not stall so."


def shares(panel: str, x: X, model: str, wanted: Wanted, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by every policy; yield the paper's bound in percent of each result and the tight bound."""
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
    """Return the completion time of the schedule that a policy makes, in seconds."""
    policy: TaskPolicy = policy_as("task", name)
    if isinstance(policy, Searching):
        policy = policy.searching(settings.scaled(_EFFORT), None, time.perf_counter)
    return policy.decide(problem, None, 0.0, np.random.default_rng(seed)).wct_s


def at(samples: Samples, panel: str, name: str, x: float) -> float:
    """Return the mean share at the place nearest to `x`."""
    places = [float(place) for place in samples.places(panel, name)]
    return samples.mean(panel, name, min(places, key=lambda place: abs(place - x)))


def drawn(samples: Samples, panel: str, names: Sequence[str]) -> list[str]:
    """Return the policies among `names` that were drawn."""
    return [name for name in names if name in samples.series(panel)]


def range_of(samples: Samples, panel: str, names: Sequence[str], *, from_x: float = 0.0) -> dict[str, float]:
    """Return the least and the greatest mean share of each policy over the places from `from_x` on."""
    found: dict[str, float] = {}
    for name in drawn(samples, panel, names):
        means = [samples.mean(panel, name, x) for x in samples.places(panel, name) if float(x) >= from_x]
        found |= {f"{name} least": min(means), f"{name} most": max(means)}
    return found


def ours_claims(samples: Samples, panels: Sequence[tuple[str, str]]) -> Iterator[Claim]:
    """Yield the claims about our policy, if it is installed, panel by panel."""
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
            paper="0 or more", ours={"least": min(ahead), "mean": float(np.mean(ahead))}, unit="points",
        )  # fmt: skip
        tight = [100.0 * samples.ratio(panel, OURS, BOUND, x) for x in places]
        yield Claim(
            key=f"{panel}-of-tight", text=f"{title}: ours, share of the tight bound", paper="",
            ours={"least mean": min(tight), "mean": float(np.mean(tight))},
        )  # fmt: skip


# ---- Figure 5

TASKS = (5, 7, 9)
ENCLOSURES, FPGAS, MEAN_S = 2, 4, 10.0
PANEL = "small"
#: An optimum counts as found if no schedule is shorter by more than this share; nodes after which the search gives up.
GAP, NODES = 0.01, 300
#: Share of the problems whose optimum was found.
SOLVED = "share solved"


def few_tasks(tasks: int, seed: int) -> TaskProblem:
    """Return tasks of 1 to 4 FPGAs in a line with exponential times, on rings of 4."""
    rng = np.random.default_rng((seed, tasks))
    return TaskProblem(
        enclosure_fpgas=np.full(ENCLOSURES, FPGAS),
        enclosure_links=np.full(ENCLOSURES, Topology.RING),
        shape_begin=np.arange(tasks + 1),
        shape_fpgas=rng.integers(1, FPGAS + 1, tasks),
        shape_seconds=rng.exponential(MEAN_S, tasks),
        links=np.full(tasks, Links.LINE),
    )


def small_measure(_: str, tasks: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy, if its optimum is found."""
    problem = few_tasks(tasks, seed)
    best = Exact(ExactParams(effort=NODES, gap=GAP)).decide(problem, None, 0.0, np.random.default_rng(seed))
    solved = best.bound_tight_s >= best.wct_s * (1 - 1.01 * GAP)
    yield Sample(PANEL, tasks, SOLVED, seed, float(solved))
    if solved:
        for name in dict.fromkeys((OURS, *PAPERS, *settings.also)):
            yield Sample(PANEL, tasks, name, seed, scheduled_s(name, problem, seed, settings) / best.wct_s)


def small_claims(samples: Samples) -> list[Claim]:
    """Return how far each policy is from the optimum."""
    if OURS not in samples.series(PANEL):
        return []
    ours = {name: samples.overall(PANEL, name) for name in samples.series(PANEL) if name != SOLVED}
    text = "few tasks: mean completion time over the proven optimum, all numbers"
    return [Claim(key="over-optimum", text=text, ours=ours, unit="")]


SMALL_EXPERIMENT = Experiment(
    number=5,
    title="completion time over the optimum of a few tasks",
    where="ours",
    panels=(Panel(key=PANEL, title="2 rings of 4", x_label="tasks", y_label="over the optimum", least_y=1.0),),
    places={PANEL: TASKS},
    measure=small_measure,
    claims=small_claims,
)


# ---- Figure 3

IRREGULARITIES = (0.1, 0.2, 0.3, 0.4, 0.55)
#: Least and most tasks of each workload, and the number of workloads.
SCENARIOS = {"single": ((1, 1), 100), "multi": ((2, 20), 30)}
RINGS = 4
_SUBJECTS = [(model, scenario) for model in ("rtm", "f11") for scenario in SCENARIOS]
_PANELS = [(f"{model}-{scenario}", f"{model.upper()}, {scenario}-task") for model, scenario in _SUBJECTS]


def _measure(subject: tuple[str, str], irregularity: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy."""
    model, scenario = subject
    tasks, workloads = SCENARIOS[scenario]
    wanted = Wanted(workloads=settings.scaled(workloads), tasks=tasks, irregularity=irregularity, enclosures=RINGS)
    yield from shares(f"{model}-{scenario}", irregularity, model, wanted, seed, settings)


def _claims(samples: Samples) -> list[Claim]:
    """Return the claims of section VI about multi-task workloads, and those about our policy."""
    return [*_rtm(samples), *_f11(samples), *ours_claims(samples, _PANELS)]


def _rtm(samples: Samples) -> Iterator[Claim]:
    panel, where = "rtm-multi", "section VI, figure 3"
    yield Claim(
        key="rtm-ranking", text="RTM: the ranking's share of the bound at all irregularities", where=where,
        paper="99.7 to 99.8", ours=range_of(samples, panel, (OURS, RANKING)), why=SYNTHETIC,
    )  # fmt: skip
    yield Claim(
        key="rtm-heft", text="RTM: HEFT's share of the bound", where=where, paper="97.5 to 98",
        ours=range_of(samples, panel, ("heft", "heft_shortest")),
        why="The paper has HEFT shortest first in section II, longest first in section VI; its figures lie between.",
    )  # fmt: skip
    yield Claim(
        key="rtm-ahead-of-fifo", text="RTM: the ranking ahead of FIFO and MFIT", where=where, paper="5 to 7",
        ours={
            name: max(samples.mean(panel, RANKING, x) - samples.mean(panel, name, x)
                      for x in samples.places(panel, name))
            for name in drawn(samples, panel, ("fifo", "mfit"))
        },
        unit="points", why=STRICT,
    )  # fmt: skip


def _f11(samples: Samples) -> Iterator[Claim]:
    panel, where = "f11-multi", "section VI, figure 3"
    for place, paper in ((0.3, "more than 95"), (0.55, "98")):
        yield Claim(
            key=f"f11-ranking-{place:g}".replace(".", "-"),
            text=f"F11: the ranking's share of the bound, irregularity {place:g}", where=where, paper=paper,
            ours={name: at(samples, panel, name, place) for name in drawn(samples, panel, (OURS, RANKING, "bound"))},
            why=f"{SYNTHETIC} The bound here is the tight one: more than that cannot be reached.",
        )  # fmt: skip
    yield Claim(
        key="f11-heft", text="F11: HEFT's share of the bound", where=where, paper="86 to 88",
        ours=range_of(samples, panel, ("heft", "heft_shortest")), why=SYNTHETIC,
    )  # fmt: skip
    yield Claim(
        key="f11-fifo-mfit", text="F11: FIFO's and MFIT's share of the bound", where=where, paper="92 to 93.5",
        ours=range_of(samples, panel, ("fifo", "mfit")), why=STRICT,
    )  # fmt: skip


def _shares_panels(panels: Sequence[tuple[str, str]], x_label: str) -> tuple[Panel, ...]:
    return tuple(
        Panel(key=key, title=title, x_label=x_label, y_label="% of the paper's bound", least_y=50.0)
        for key, title in panels
    )


EXPERIMENT = Experiment(
    number=3,
    title=f"share of the bound by irregularity, {RINGS} rings of 8",
    where="lattice paper, section VI",
    panels=_shares_panels(_PANELS, "irregularity"),
    places=dict.fromkeys(_SUBJECTS, IRREGULARITIES),
    measure=_measure,
    claims=_claims,
    stated=(
        Stated("rtm-multi", RANKING, 99.7, 99.8),
        Stated("rtm-multi", "heft", 97.5, 98.0),
        Stated("f11-multi", RANKING, 95.0, 98.0, from_x=0.3),
        Stated("f11-multi", "heft", 86.0, 88.0),
        Stated("f11-multi", "fifo", 92.0, 93.5),
    ),
)


# ---- Figure 4

NUMBERS = (10, 20, 30, 50, 70, 90, 120, 150)
#: RTM with wide differences: the paper does not define what it calls highly irregular.
MODELS = {"rtmw": "RTM", "f11": "F11"}
IRREGULARITY, WORKLOADS_RINGS = 0.6, 8
_WORKLOADS_SUBJECTS = [(model, scenario) for model in MODELS for scenario in SCENARIOS]
_WORKLOADS_PANELS = [
    (f"{model}-{scenario}", f"{MODELS[model]}, {scenario}-task") for model, scenario in _WORKLOADS_SUBJECTS
]


def _measure_workloads(subject: tuple[str, str], workloads: int, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy."""
    model, scenario = subject
    tasks, _ = SCENARIOS[scenario]
    wanted = Wanted(workloads=workloads, tasks=tasks, irregularity=IRREGULARITY, enclosures=WORKLOADS_RINGS)
    yield from shares(f"{model}-{scenario}", workloads, model, wanted, seed, settings)


def _workloads_claims(samples: Samples) -> list[Claim]:
    """Return the claims of section VI about numbers of workloads, and those about our policy."""
    return [*_workloads_rtm(samples), *_workloads_f11(samples), *ours_claims(samples, _WORKLOADS_PANELS)]


def _workloads_rtm(samples: Samples) -> Iterator[Claim]:
    panel, where = "rtmw-single", "section VI, figure 4"
    low = (OURS, "heft", RANKING, "fifo", "mfit")
    yield Claim(
        key="rtm-low", text="RTM, low number of workloads (ours: 50, one task each): share of the bound", where=where,
        paper="at 30: HEFT 93, ranking 85, FIFO and MFIT 76", ours=_at(samples, panel, low, 50),
        why="The order is the paper's; where it turns hangs on how many FPGAs there are, which the paper does not say.",
    )  # fmt: skip
    yield Claim(
        key="rtm-crossover", text="RTM, one task each: workloads from which on the ranking is ahead of HEFT",
        where=where, paper="50", ours={RANKING: _crossover(samples, panel)}, unit="", why=SYNTHETIC,
    )  # fmt: skip
    yield Claim(
        key="rtm-high", text="RTM, the most workloads, several tasks each: share of the bound", where=where,
        paper="ranking 99", ours=_at(samples, "rtmw-multi", (OURS, RANKING, "heft", "heft_shortest"), 150),
        why=f"{SYNTHETIC} On these the ranking levels off.",
    )  # fmt: skip


def _at(samples: Samples, panel: str, names: Sequence[str], x: float) -> dict[str, float]:
    return {name: at(samples, panel, name, x) for name in drawn(samples, panel, names)}


def _crossover(samples: Samples, panel: str) -> float:
    """Return the first place from which on the ranking stays ahead of HEFT; inf if it never does."""
    first = float("inf")
    for x in reversed(samples.places(panel, RANKING)):
        if samples.mean(panel, RANKING, x) <= samples.mean(panel, "heft", x):
            break
        first = float(x)
    return first


def _workloads_f11(samples: Samples) -> Iterator[Claim]:
    panel, where = "f11-multi", "section VI, figure 4"
    yield Claim(
        key="f11-ranking", text="F11: the ranking's share of the bound", where=where, paper="91 to 98",
        ours=range_of(samples, panel, (OURS, RANKING)), why=SYNTHETIC,
    )  # fmt: skip
    yield Claim(
        key="f11-heft", text="F11: HEFT's share of the bound", where=where, paper="about 90",
        ours=range_of(samples, panel, ("heft",)), why=SYNTHETIC,
    )  # fmt: skip
    yield Claim(
        key="f11-fifo-mfit", text="F11, more than 60 workloads: FIFO's and MFIT's share of the bound", where=where,
        paper="about 93", ours=range_of(samples, panel, ("fifo", "mfit"), from_x=60), why=STRICT,
    )  # fmt: skip


WORKLOADS_EXPERIMENT = Experiment(
    number=4,
    title=f"share of the bound by number of workloads, irregularity {IRREGULARITY:g}, {WORKLOADS_RINGS} rings of 8",
    where="lattice paper, section VI",
    panels=_shares_panels(_WORKLOADS_PANELS, "workloads"),
    places=dict.fromkeys(_WORKLOADS_SUBJECTS, NUMBERS),
    measure=_measure_workloads,
    claims=_workloads_claims,
    stated=(
        Stated("rtmw-single", "heft", 93.0, 93.0, from_x=25.0, to_x=35.0),
        Stated("rtmw-single", RANKING, 85.0, 85.0, from_x=25.0, to_x=35.0),
        Stated("rtmw-single", "fifo", 76.0, 76.0, from_x=25.0, to_x=35.0),
        Stated("rtmw-multi", RANKING, 99.0, 99.0, from_x=NUMBERS[-1] - 5.0, to_x=NUMBERS[-1] + 5.0),
        Stated("f11-multi", RANKING, 91.0, 98.0),
        Stated("f11-multi", "heft", 90.0, 90.0),
        Stated("f11-multi", "fifo", 93.0, 93.0, from_x=60.0),
    ),
)

#: In order of their numbers.
EXPERIMENTS = (EXPERIMENT, WORKLOADS_EXPERIMENT, SMALL_EXPERIMENT)
