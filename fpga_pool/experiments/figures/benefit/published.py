"""Figures 3 and 4 of the benefit paper: by throughput and by benefit, with and without replacement."""

from collections.abc import Iterator
from dataclasses import dataclass

from fpga_pool.experiments.benefit import CATALOGUES
from fpga_pool.experiments.figures.benefit.runs import (
    ALPHAS,
    BASELINE,
    KEEPING,
    LOAD_S,
    OURS,
    REPLACING,
    catalogue_benefits,
    least_claim,
    mean_ratio,
    share_claim,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

_WHERE = "section V, figure 3"
#: "When the workload is light", and where slots are scarce and not yet all alike.
LIGHT, MIDDLE = 2.0, (6.0, 12.0)


@dataclass(frozen=True, slots=True)
class Case:
    """One load on one catalogue."""

    catalogue: str
    alpha: float


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(catalogue, alpha) for catalogue in CATALOGUES for alpha in settings.thinned(ALPHAS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = BASELINE, KEEPING
    yield from catalogue_benefits(case.catalogue, case.catalogue, LOAD_S, case.alpha, policies, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return what section V says of figure 3."""
    return [claim for catalogue in CATALOGUES for claim in _of_catalogue(samples, catalogue)]


def _of_catalogue(samples: Samples, panel: str) -> Iterator[Claim]:
    places = samples.places(panel, KEEPING)
    parts = {
        "light": [x for x in places if float(x) <= LIGHT],
        "middle": [x for x in places if MIDDLE[0] <= float(x) <= MIDDLE[1]],
        "mean": list(places),
    }
    yield Claim(
        key=f"{panel}-benefit-over-throughput",
        text=f"catalogue {panel.upper()}: benefit over throughput",
        where=_WHERE,
        paper="2.52",
        ours={name: mean_ratio(samples, panel, KEEPING, BASELINE, chosen) for name, chosen in parts.items() if chosen},
        unit="x",
        why="" if panel == "a" else "It hangs on how speedup and I/O rate go together: figure 8.",
    )
    yield share_claim(samples, panel, f"catalogue {panel.upper()}", (BASELINE, KEEPING, OURS))


#: One for each catalogue.
PANELS = tuple(
    Panel(key=name, title=f"catalogue {name.upper()}", x_label="alpha", y_label="benefit, vCPUs") for name in CATALOGUES
)

EXPERIMENT = Experiment(
    number=3,
    title="benefit over alpha, by throughput and by benefit, without replacement",
    where=_WHERE,
    panels=PANELS,
    cases=cases,
    measure=measure,
    claims=claims,
)


_REPLACING_WHERE = "section V, figure 4"


def replacing_measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = KEEPING, REPLACING
    yield from catalogue_benefits(case.catalogue, case.catalogue, LOAD_S, case.alpha, policies, seed, settings)


def replacing_claims(samples: Samples) -> list[Claim]:
    """Return what section V says of figure 4, and how ours compares."""
    return [claim for catalogue in CATALOGUES for claim in _replacing_of_catalogue(samples, catalogue)]


def _replacing_of_catalogue(samples: Samples, panel: str) -> Iterator[Claim]:
    yield Claim(
        key=f"{panel}-replacement-gains",
        text=f"catalogue {panel.upper()}: gain of replacement, mean over alpha",
        where=_REPLACING_WHERE,
        paper="38.60 %",
        ours={name: 100 * (mean_ratio(samples, panel, name, KEEPING) - 1) for name in (REPLACING, OURS)},
        why="The hold decides: figure 8.",
    )
    yield least_claim(samples, panel, f"catalogue {panel.upper()}")
    yield share_claim(samples, panel, f"catalogue {panel.upper()}")


REPLACING_EXPERIMENT = Experiment(
    number=4,
    title="benefit over alpha, with and without replacement; hold 5 s, loads of 0.05 s",
    where=_REPLACING_WHERE,
    panels=PANELS,
    cases=cases,
    measure=replacing_measure,
    claims=replacing_claims,
)
