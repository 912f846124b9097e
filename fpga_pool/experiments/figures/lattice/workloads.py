"""Figures 3 and 4: share of the bound over irregularity, and over the number of workloads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.lattice.small import (
    OURS,
    RANKING,
    STRICT,
    SYNTHETIC,
    at,
    drawn,
    ours_claims,
    range_of,
    shares,
)
from fpga_pool.sim.lattice.workloads import Wanted

# ---- Figure 3

IRREGULARITIES = (0.1, 0.2, 0.3, 0.4, 0.55)
#: Tasks of each workload, and how many workloads there are.
SCENARIOS = {"single": ((1, 1), 100), "multi": ((2, 20), 30)}
RINGS = 4
_PANELS = tuple(
    (f"{model}-{scenario}", f"{model.upper()}, {scenario}-task")
    for model in ("rtm", "f11")
    for scenario in SCENARIOS
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One model and scenario at one irregularity."""

    model: str
    scenario: str
    irregularity: float


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    places = settings.thinned(IRREGULARITIES)
    return [Case(model, scenario, x) for model in ("rtm", "f11") for scenario in SCENARIOS for x in places]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy."""
    tasks, workloads = SCENARIOS[case.scenario]
    wanted = Wanted(workloads=settings.scaled(workloads), tasks=tasks, irregularity=case.irregularity, enclosures=RINGS)
    yield from shares(f"{case.model}-{case.scenario}", case.irregularity, case.model, wanted, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return what section VI says of multi-task workloads, and what is said of ours."""
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


EXPERIMENT = Experiment(
    number=3,
    title=f"share of the bound by irregularity, {RINGS} rings of 8",
    where="lattice paper, section VI",
    panels=tuple(
        Panel(key=key, title=title, x_label="irregularity", y_label="% of the paper's bound", least_y=50.0)
        for key, title in _PANELS
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)


# ---- Figure 4

NUMBERS = (10, 20, 30, 50, 70, 90, 120, 150)
WORKLOADS_SCENARIOS = {"single": (1, 1), "multi": (2, 20)}
#: RTM with wide differences: what the paper calls highly irregular is not given.
MODELS = {"rtmw": "RTM", "f11": "F11"}
IRREGULARITY, WORKLOADS_RINGS = 0.6, 8
_WORKLOADS_PANELS = tuple(
    (f"{model}-{scenario}", f"{title}, {scenario}-task")
    for model, title in MODELS.items()
    for scenario in WORKLOADS_SCENARIOS
)


@dataclass(frozen=True, slots=True)
class WorkloadsCase:
    """One model and scenario with this many workloads."""

    model: str
    scenario: str
    workloads: int


def workloads_cases(settings: Settings) -> list[WorkloadsCase]:
    """Return all panels, place by place."""
    places = settings.thinned(NUMBERS)
    return [WorkloadsCase(model, scenario, x) for model in MODELS for scenario in WORKLOADS_SCENARIOS for x in places]


def workloads_measure(case: WorkloadsCase, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy."""
    wanted = Wanted(
        workloads=case.workloads,
        tasks=WORKLOADS_SCENARIOS[case.scenario],
        irregularity=IRREGULARITY,
        enclosures=WORKLOADS_RINGS,
    )
    yield from shares(f"{case.model}-{case.scenario}", case.workloads, case.model, wanted, seed, settings)


def workloads_claims(samples: Samples) -> list[Claim]:
    """Return what section VI says of numbers of workloads, and what is said of ours."""
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
    """Return the first place from which on the ranking stays ahead; inf where it never does."""
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
    panels=tuple(
        Panel(key=key, title=title, x_label="workloads", y_label="% of the paper's bound", least_y=50.0)
        for key, title in _WORKLOADS_PANELS
    ),
    cases=workloads_cases,
    measure=workloads_measure,
    claims=workloads_claims,
)
