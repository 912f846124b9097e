"""Figures 8, 13 and 14: migrations per gang over the load (section 3.4), and their cost (section 3.5.3)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.gangs.runs import (
    FEITELSON,
    JANN,
    KEASY,
    LOADS,
    MEASY,
    OURS,
    RESPONSE,
    SLOWDOWN,
    Setting,
    results,
)

# ---- Figure 8

_WHERE = "section 3.4, figure 8"


@dataclass(frozen=True, slots=True)
class Case:
    """One load of one workload."""

    workload: str
    load: float


def cases(settings: Settings) -> list[Case]:
    """Return both panels, place by place."""
    return [Case(workload, load) for workload in (FEITELSON, JANN) for load in settings.thinned(LOADS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by the policies that migrate."""
    policies = dict.fromkeys([MEASY, OURS, *settings.also])
    for name, found in results(Setting(workload=case.workload), case.load, list(policies), seed, settings):
        yield Sample(case.workload, case.load, name, seed, found.migrations)


def claims(samples: Samples) -> list[Claim]:
    """Return observation 3."""
    low, high = (pick(samples.places(JANN, MEASY), key=float) for pick in (min, max))
    return [
        Claim(
            key=f"{place}-load-jann-over-feitelson",
            text=f"{place} load: migrations per gang on Jann's workload over those on Feitelson's",
            where=_WHERE,
            paper=paper,
            ours={name: samples.mean(JANN, name, x) / samples.mean(FEITELSON, name, x) for name in (MEASY, OURS)},
            unit="x",
            why="Counted per gang; the paper's axis is not in its text.",
        )
        for place, x, paper in (("low", low, "below 1"), ("high", high, "above 1"))
    ]


EXPERIMENT = Experiment(
    number=8,
    title="migrations",
    where=_WHERE,
    panels=tuple(Panel(key=name, title=name, x_label="load", y_label="per gang") for name in (FEITELSON, JANN)),
    cases=cases,
    measure=measure,
    claims=claims,
)


# ---- Figures 13 and 14

_COSTS_WHERE = "section 3.5.3"
#: 20 s is the default; 480, 900 and 1500 s are those that the text names.
COSTS_S = (20.0, 120.0, 480.0, 900.0, 1500.0, 3000.0)
#: The text does not say which.
LOAD = 0.8


def costs_cases(settings: Settings) -> list[float]:
    """Return the costs."""
    return settings.thinned(COSTS_S)


def costs_measure(workload: str, cost_s: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = dict.fromkeys([KEASY, MEASY, OURS, *settings.also])
    for name, found in results(Setting(workload=workload), LOAD, list(policies), seed, settings, cost_s):
        yield Sample(RESPONSE, cost_s, name, seed, found.response_s)
        yield Sample(SLOWDOWN, cost_s, name, seed, found.slowdown)


def costs_claims(paper: str, samples: Samples) -> list[Claim]:
    """Return by how much policies that migrate are better than the one that kills, by cost."""
    return [
        Claim(
            key=f"{name.replace('_', '-')}-over-keasy",
            text=f"mean response time: improvement of {name} over KEASY, by the cost of a migration",
            where=_COSTS_WHERE,
            paper=said,
            ours={f"{x:g} s": _better(samples, name, x) for x in map(float, samples.places(RESPONSE, name))},
            why=f"At load {LOAD:g}; the text names none.",
        )
        for name, said in ((MEASY, paper), (OURS, "not given"))
    ]


def _better(samples: Samples, name: str, x: float) -> float:
    one, other = samples.values(RESPONSE, name, x), samples.values(RESPONSE, KEASY, x)
    return float(np.mean([100 * (1 - one[seed] / other[seed]) for seed in one]))


EXPERIMENTS = tuple(
    Experiment(
        number=number,
        title=f"{workload}, the cost of a migration, load {LOAD:g}",
        where=_COSTS_WHERE,
        panels=tuple(
            Panel(key=key, title=title, x_label="cost, s", y_label=unit)
            for key, title, unit in ((RESPONSE, "mean response time", "s"), (SLOWDOWN, "mean bounded slowdown", ""))
        ),
        cases=costs_cases,
        measure=partial(costs_measure, workload),
        claims=partial(costs_claims, paper),
    )
    for number, workload, paper in (
        (13, FEITELSON, "better below 900 s, a little worse beyond 1500 s"),
        (14, JANN, "better below 480 s, a little worse beyond 900 s"),
    )
)
