"""Figure 4: with and without replacement (section V, second experiment)."""

from collections.abc import Iterator

from fpga_pool.experiments.benefit.cases import CATALOGUES
from fpga_pool.experiments.figures.benefit.metric import PANELS, Case, cases
from fpga_pool.experiments.figures.benefit.runs import (
    KEEPING,
    LOAD_S,
    OURS,
    REPLACING,
    catalogue_benefits,
    least_claim,
    mean_ratio,
    share_claim,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Sample, Samples, Settings

_WHERE = "section V, figure 4"


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = KEEPING, REPLACING
    yield from catalogue_benefits(case.catalogue, case.catalogue, LOAD_S, case.alpha, policies, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return what section V says of figure 4, and how ours compares."""
    return [claim for catalogue in CATALOGUES for claim in _of_catalogue(samples, catalogue)]


def _of_catalogue(samples: Samples, panel: str) -> Iterator[Claim]:
    yield Claim(
        key=f"{panel}-replacement-gains",
        text=f"catalogue {panel.upper()}: gain of replacement, mean over alpha",
        where=_WHERE,
        paper="38.60 %",
        ours={name: 100 * (mean_ratio(samples, panel, name, KEEPING) - 1) for name in (REPLACING, OURS)},
        why="The hold decides: figure 8.",
    )
    yield least_claim(samples, panel, f"catalogue {panel.upper()}")
    yield share_claim(samples, panel, f"catalogue {panel.upper()}")


EXPERIMENT = Experiment(
    number=4,
    title="benefit over alpha, with and without replacement; hold 5 s, loads of 0.05 s",
    where=_WHERE,
    panels=PANELS,
    cases=cases,
    measure=measure,
    claims=claims,
)
