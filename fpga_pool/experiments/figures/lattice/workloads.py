"""Figure 4: share of the bound over the number of workloads, highly irregular ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.lattice.runs import (
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

NUMBERS = (10, 20, 30, 50, 70, 90, 120, 150)
SCENARIOS = {"single": (1, 1), "multi": (2, 20)}
#: RTM with wide differences: what the paper calls highly irregular is not given.
MODELS = {"rtmw": "RTM", "f11": "F11"}
IRREGULARITY, RINGS = 0.6, 8
_PANELS = tuple(
    (f"{model}-{scenario}", f"{title}, {scenario}-task") for model, title in MODELS.items() for scenario in SCENARIOS
)


@dataclass(frozen=True, slots=True)
class Case:
    """One model and scenario with so many workloads."""

    model: str
    scenario: str
    workloads: int


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    places = settings.thinned(NUMBERS)
    return [Case(model, scenario, x) for model in MODELS for scenario in SCENARIOS for x in places]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Schedule one problem by each policy."""
    wanted = Wanted(
        workloads=case.workloads, tasks=SCENARIOS[case.scenario], irregularity=IRREGULARITY, enclosures=RINGS
    )
    yield from shares(f"{case.model}-{case.scenario}", case.workloads, case.model, wanted, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return what section VI says of numbers of workloads, and what is said of ours."""
    return [*_rtm(samples), *_f11(samples), *ours_claims(samples, _PANELS)]


def _rtm(samples: Samples) -> Iterator[Claim]:
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


def _f11(samples: Samples) -> Iterator[Claim]:
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


EXPERIMENT = Experiment(
    number=4,
    title=f"share of the bound by number of workloads, irregularity {IRREGULARITY:g}, {RINGS} rings of 8",
    where="lattice paper, section VI",
    panels=tuple(
        Panel(key=key, title=title, x_label="workloads", y_label="% of the paper's bound", least_y=50.0)
        for key, title in _PANELS
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
