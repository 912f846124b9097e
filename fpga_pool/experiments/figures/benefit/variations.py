"""Figure 5, ours: random catalogues and mixes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.experiments.benefit import LOAD_S as ALL_LOADS_S
from fpga_pool.experiments.benefit import card_pool, random_speedups, reference_catalogue
from fpga_pool.experiments.figures.benefit.runs import (
    BASELINE,
    BOUND,
    KEEPING,
    OURS,
    REPLACING,
    benefits,
    curves,
    mean_ratio,
    trace,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

ALPHAS = (2.0, 4.0, 8.0, 16.0)
#: Catalogues, each drawn again, with a scale of 1.
CATALOGUES = 20
SECONDS = 60


@dataclass(frozen=True, slots=True)
class Case:
    """One load, at which all catalogues are measured."""

    load_s: float
    alpha: float


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(load_s, alpha) for load_s in ALL_LOADS_S for alpha in settings.thinned(ALPHAS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run each catalogue by each policy; a sample is the mean over the catalogues of its share of the bound."""
    shares: dict[str, list[float]] = {}
    pool = card_pool(reference_catalogue("a"), case.load_s)
    for catalogue in range(settings.scaled(CATALOGUES)):
        drawn = random_speedups(pool, 1000 * seed + catalogue)
        jobs = trace(drawn, case.alpha, 1000 * seed + catalogue, settings, seconds=SECONDS)
        names = curves((BASELINE, KEEPING, REPLACING), settings)
        found = {sample.series: sample.value for sample in benefits("", 0.0, names, drawn, jobs, seed)}
        for name in names:
            shares.setdefault(name, []).append(100 * found[name] / found[BOUND])
    for name, values in shares.items():
        yield Sample(_panel(case.load_s), case.alpha, name, seed, float(np.mean(values)))


def claims(samples: Samples) -> list[Claim]:
    """Return what holds of catalogues at large."""
    return [claim for load_s in ALL_LOADS_S for claim in _of_load(samples, _panel(load_s))]


def _of_load(samples: Samples, panel: str) -> Iterator[Claim]:
    places = samples.places(panel, OURS)
    if not places:
        return
    yield Claim(
        key=f"{panel}-share-of-bound",
        text=f"random catalogues, loads of {panel} s: mean share of the bound",
        where="ours",
        paper="not given",
        ours={name: float(np.mean([samples.mean(panel, name, x) for x in places])) for name in samples.series(panel)},
    )
    yield Claim(
        key=f"{panel}-ratios",
        text=f"random catalogues, loads of {panel} s: ratios of mean shares",
        where="section V",
        paper="2.52 and 1.386",
        ours={
            "benefit over throughput": mean_ratio(samples, panel, KEEPING, BASELINE),
            "replacement over none": mean_ratio(samples, panel, REPLACING, KEEPING),
            "ours over replacement": mean_ratio(samples, panel, OURS, REPLACING),
        },
        unit="x",
        why="Both are properties of a catalogue: figure 8.",
    )


def _panel(load_s: float) -> str:
    return f"{load_s:g}"


EXPERIMENT = Experiment(
    number=5,
    title="share of the bound over alpha, means over random catalogues",
    where="ours",
    panels=tuple(
        Panel(key=_panel(load_s), title=f"loads of {load_s:g} s", x_label="alpha", y_label="% of the bound")
        for load_s in ALL_LOADS_S
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
