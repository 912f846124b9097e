"""Figures 13 and 14: what a migration may cost (section 3.5.3)."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.gangs.compare import RESPONSE, SLOWDOWN
from fpga_pool.experiments.figures.gangs.runs import FEITELSON, JANN, KEASY, MEASY, OURS, Setting, results

_WHERE = "section 3.5.3"
#: 20 s is the default; 480, 900 and 1500 s are those that the text names.
COSTS_S = (20.0, 120.0, 480.0, 900.0, 1500.0, 3000.0)
#: The text does not say which.
LOAD = 0.8


def cases(settings: Settings) -> list[float]:
    """Return the costs."""
    return settings.thinned(COSTS_S)


def measure(workload: str, cost_s: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = dict.fromkeys([KEASY, MEASY, OURS, *settings.also])
    for name, found in results(Setting(workload=workload), LOAD, list(policies), seed, settings, cost_s):
        yield Sample(RESPONSE, cost_s, name, seed, found.response_s)
        yield Sample(SLOWDOWN, cost_s, name, seed, found.slowdown)


def claims(paper: str, samples: Samples) -> list[Claim]:
    """Return by how much policies that migrate are better than the one that kills, by cost."""
    return [
        Claim(
            key=f"{name.replace('_', '-')}-over-keasy",
            text=f"mean response time: improvement of {name} over KEASY, by the cost of a migration",
            where=_WHERE,
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
        where=_WHERE,
        panels=tuple(
            Panel(key=key, title=title, x_label="cost, s", y_label=unit)
            for key, title, unit in ((RESPONSE, "mean response time", "s"), (SLOWDOWN, "mean bounded slowdown", ""))
        ),
        cases=cases,
        measure=partial(measure, workload),
        claims=partial(claims, paper),
    )
    for number, workload, paper in (
        (13, FEITELSON, "better below 900 s, a little worse beyond 1500 s"),
        (14, JANN, "better below 480 s, a little worse beyond 900 s"),
    )
)
