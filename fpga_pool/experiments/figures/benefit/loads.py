"""Figure 6, ours: share of the bound over alpha, by how long a load takes."""

from collections.abc import Iterator

from fpga_pool.experiments.benefit.cases import CATALOGUES, LOAD_S
from fpga_pool.experiments.figures.benefit.cells import Cell, cells, panel_key, panel_title, panels
from fpga_pool.experiments.figures.benefit.runs import (
    KEEPING,
    REPLACING,
    catalogue_benefits,
    share_claim,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Sample, Samples, Settings


def cases(settings: Settings) -> list[Cell]:
    """Return all panels, place by place."""
    return cells(CATALOGUES, settings)


def measure(case: Cell, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = KEEPING, REPLACING
    yield from catalogue_benefits(case.panel, case.catalogue, case.load_s, case.alpha, policies, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return how near each policy is to the bound."""
    return [_of_panel(samples, name, load_s) for name in CATALOGUES for load_s in LOAD_S]


def _of_panel(samples: Samples, catalogue: str, load_s: float) -> Claim:
    return share_claim(samples, panel_key(catalogue, load_s), panel_title(catalogue, load_s))


EXPERIMENT = Experiment(
    number=6,
    title="benefit over alpha, by catalogue and time to reconfigure",
    where="ours",
    panels=panels(CATALOGUES),
    cases=cases,
    measure=measure,
    claims=claims,
)
