"""Figure 6, ours: share of the bound over alpha, by how long a load takes."""

from collections.abc import Iterator
from dataclasses import dataclass

from fpga_pool.experiments.benefit.cases import ALPHAS, CATALOGUES, LOAD_S
from fpga_pool.experiments.figures.benefit.runs import (
    KEEPING,
    REPLACING,
    catalogue_benefits,
    share_claim,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings


@dataclass(frozen=True, slots=True)
class Case:
    """One load on one catalogue, with one time to reconfigure."""

    catalogue: str
    load_s: float
    alpha: float

    @property
    def panel(self) -> str:
        """Name its panel."""
        return _panel(self.catalogue, self.load_s)


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    places = settings.thinned(ALPHAS)
    return [Case(name, load_s, alpha) for name in CATALOGUES for load_s in LOAD_S for alpha in places]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = KEEPING, REPLACING
    yield from catalogue_benefits(case.panel, case.catalogue, case.load_s, case.alpha, policies, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return how near each policy is to the bound."""
    return [_of_panel(samples, name, load_s) for name in CATALOGUES for load_s in LOAD_S]


def _of_panel(samples: Samples, catalogue: str, load_s: float) -> Claim:
    return share_claim(samples, _panel(catalogue, load_s), f"catalogue {catalogue.upper()}, loads of {load_s:g} s")


def _panel(catalogue: str, load_s: float) -> str:
    return f"{catalogue}-{load_s:g}"


EXPERIMENT = Experiment(
    number=6,
    title="benefit over alpha, by catalogue and time to reconfigure",
    where="ours",
    panels=tuple(
        Panel(
            key=_panel(name, load_s),
            title=f"catalogue {name.upper()}, loads of {load_s:g} s",
            x_label="alpha",
            y_label="benefit, vCPUs",
        )
        for name in CATALOGUES
        for load_s in LOAD_S
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
