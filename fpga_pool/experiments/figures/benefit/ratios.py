"""Figure 10, ours: our policy over the better of Algorithms 1 and 2, cell by cell, without bounds: for many seeds."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.benefit.cases import (
    ALPHAS,
    CATALOGUES,
    LOAD_S,
    card_pool,
    random_speedups,
    reference_catalogue,
)
from fpga_pool.experiments.figures.benefit.runs import KEEPING, OURS, REPLACING, benefit_vcpus, trace
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

#: A catalogue drawn anew for each seed.
RANDOM = "random"


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

    def pool(self, seed: int) -> OnlinePool:
        """Return one card."""
        if self.catalogue != RANDOM:
            return card_pool(reference_catalogue(self.catalogue), self.load_s)
        return random_speedups(card_pool(reference_catalogue("a"), self.load_s), seed)


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    places = settings.thinned(ALPHAS)
    return [Case(name, load_s, alpha) for name in (*CATALOGUES, RANDOM) for load_s in LOAD_S for alpha in places]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by three policies."""
    pool = case.pool(seed)
    jobs = trace(pool, case.alpha, seed, settings)
    for name in (KEEPING, REPLACING, OURS):
        yield Sample(case.panel, case.alpha, name, seed, benefit_vcpus(pool, jobs, name))


def claims(samples: Samples) -> list[Claim]:
    """Return the ratio of the means where it is least, and its standard error."""
    return [_of_panel(samples, name, load_s) for name in (*CATALOGUES, RANDOM) for load_s in LOAD_S]


def _of_panel(samples: Samples, catalogue: str, load_s: float) -> Claim:
    panel = _panel(catalogue, load_s)
    found = {float(x): ratio_of_means(samples, panel, x) for x in samples.places(panel, OURS)}
    alpha = min(found, key=lambda x: found[x][0])
    ours = {"least": found[alpha][0], "at alpha": alpha, "mean": float(np.mean([ratio for ratio, _ in found.values()]))}
    if np.isfinite(found[alpha][1]):
        ours["standard error"] = found[alpha][1]
    return Claim(
        key=f"{panel}-over-paper",
        text=f"catalogue {catalogue.upper()}, loads of {load_s:g} s: ours over the better of the paper's two, by alpha",
        where="ours",
        paper="not given",
        ours=ours,
        unit="x",
    )


def ratio_of_means(samples: Samples, panel: str, x: float | str) -> tuple[float, float]:
    """Return the mean benefit of ours over that of the better of the two, and its standard error; nan with one seed.

    The error is that of the mean difference of the two on the same traces, as a share of the other's mean.
    """
    other = max((KEEPING, REPLACING), key=lambda name: samples.mean(panel, name, x))
    ours, theirs = (
        np.array([samples.values(panel, name, x)[seed] for seed in sorted(samples.values(panel, OURS, x))])
        for name in (OURS, other)
    )
    error = (ours - theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean() if len(ours) > 1 else np.nan
    return float(ours.mean() / theirs.mean()), float(error)


def _panel(catalogue: str, load_s: float) -> str:
    return f"{catalogue}-{load_s:g}"


EXPERIMENT = Experiment(
    number=10,
    title="ours over the better of the paper's two, by catalogue and time to reconfigure",
    where="ours",
    panels=tuple(
        Panel(
            key=_panel(name, load_s),
            title=f"catalogue {name.upper()}, loads of {load_s:g} s",
            x_label="alpha",
            y_label="benefit, vCPUs",
        )
        for name in (*CATALOGUES, RANDOM)
        for load_s in LOAD_S
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
