"""Figure 8: migrations per gang over the load (section 3.4)."""

from collections.abc import Iterator
from dataclasses import dataclass

from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.experiments.figures.gangs.runs import FEITELSON, JANN, LOADS, MEASY, OURS, Setting, results

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
