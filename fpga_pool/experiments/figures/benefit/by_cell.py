"""Figures 3 and 4 of the benefit paper, and 6 and 10, ours: benefit by catalogue, time to reconfigure and alpha."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.benefit import (
    ALPHAS,
    CATALOGUES,
    LOAD_S,
    card_pool,
    random_speedups,
    reference_catalogue,
)
from fpga_pool.experiments.figures.benefit import runs
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

# ---- Figures 3 and 4

_WHERE = "section V, figure 3"
#: "When the workload is light", and where slots are scarce and not yet all alike.
LIGHT, MIDDLE = 2.0, (6.0, 12.0)


@dataclass(frozen=True, slots=True)
class Case:
    """One load on one catalogue."""

    catalogue: str
    alpha: float


def published_cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(catalogue, alpha) for catalogue in CATALOGUES for alpha in settings.thinned(runs.ALPHAS)]


def published_measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = runs.BASELINE, runs.KEEPING
    yield from runs.catalogue_benefits(
        case.catalogue, case.catalogue, runs.LOAD_S, case.alpha, policies, seed, settings
    )


def published_claims(samples: Samples) -> list[Claim]:
    """Return what section V says of figure 3."""
    return [claim for catalogue in CATALOGUES for claim in _published_of_catalogue(samples, catalogue)]


def _published_of_catalogue(samples: Samples, panel: str) -> Iterator[Claim]:
    places = samples.places(panel, runs.KEEPING)
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
        ours={
            name: runs.mean_ratio(samples, panel, runs.KEEPING, runs.BASELINE, chosen)
            for name, chosen in parts.items()
            if chosen
        },
        unit="x",
        why="" if panel == "a" else "It hangs on how speedup and I/O rate go together: figure 8.",
    )
    yield runs.share_claim(samples, panel, f"catalogue {panel.upper()}", (runs.BASELINE, runs.KEEPING, runs.OURS))


#: One for each catalogue.
PANELS = tuple(
    Panel(key=name, title=f"catalogue {name.upper()}", x_label="alpha", y_label="benefit, vCPUs") for name in CATALOGUES
)

PUBLISHED_EXPERIMENT = Experiment(
    number=3,
    title="benefit over alpha, by throughput and by benefit, without replacement",
    where=_WHERE,
    panels=PANELS,
    cases=published_cases,
    measure=published_measure,
    claims=published_claims,
)


_REPLACING_WHERE = "section V, figure 4"


def replacing_measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = runs.KEEPING, runs.REPLACING
    yield from runs.catalogue_benefits(
        case.catalogue, case.catalogue, runs.LOAD_S, case.alpha, policies, seed, settings
    )


def replacing_claims(samples: Samples) -> list[Claim]:
    """Return what section V says of figure 4, and how ours compares."""
    return [claim for catalogue in CATALOGUES for claim in _replacing_of_catalogue(samples, catalogue)]


def _replacing_of_catalogue(samples: Samples, panel: str) -> Iterator[Claim]:
    yield Claim(
        key=f"{panel}-replacement-gains",
        text=f"catalogue {panel.upper()}: gain of replacement, mean over alpha",
        where=_REPLACING_WHERE,
        paper="38.60 %",
        ours={
            name: 100 * (runs.mean_ratio(samples, panel, name, runs.KEEPING) - 1)
            for name in (runs.REPLACING, runs.OURS)
        },
        why="The hold decides: figure 8.",
    )
    yield runs.least_claim(samples, panel, f"catalogue {panel.upper()}")
    yield runs.share_claim(samples, panel, f"catalogue {panel.upper()}")


REPLACING_EXPERIMENT = Experiment(
    number=4,
    title="benefit over alpha, with and without replacement; hold 5 s, loads of 0.05 s",
    where=_REPLACING_WHERE,
    panels=PANELS,
    cases=published_cases,
    measure=replacing_measure,
    claims=replacing_claims,
)


# ---- Figures 6 and 10: benefit and its ratio to the paper's, by catalogue, time to reconfigure and alpha


@dataclass(frozen=True, slots=True)
class Cell:
    """One load on one catalogue, with one time to reconfigure."""

    catalogue: str
    load_s: float
    alpha: float

    @property
    def panel(self) -> str:
        """Name its panel."""
        return panel_key(self.catalogue, self.load_s)


def panel_key(catalogue: str, load_s: float) -> str:
    """Name the panel of a catalogue and a time to reconfigure."""
    return f"{catalogue}-{load_s:g}"


def panel_title(catalogue: str, load_s: float) -> str:
    """Say the same for people."""
    return f"catalogue {catalogue.upper()}, loads of {load_s:g} s"


def cells(catalogues: Iterable[str], settings: Settings) -> list[Cell]:
    """Return all panels, place by place."""
    places = settings.thinned(ALPHAS)
    return [Cell(name, load_s, alpha) for name in catalogues for load_s in LOAD_S for alpha in places]


def panels(catalogues: Iterable[str]) -> tuple[Panel, ...]:
    """Return a panel of benefit over alpha for each catalogue and time to reconfigure."""
    return tuple(
        Panel(key=panel_key(name, load_s), title=panel_title(name, load_s), x_label="alpha", y_label="benefit, vCPUs")
        for name in catalogues
        for load_s in LOAD_S
    )


def cases(settings: Settings) -> list[Cell]:
    """Return all panels, place by place."""
    return cells(CATALOGUES, settings)


def measure(case: Cell, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    policies = runs.KEEPING, runs.REPLACING
    yield from runs.catalogue_benefits(case.panel, case.catalogue, case.load_s, case.alpha, policies, seed, settings)


def claims(samples: Samples) -> list[Claim]:
    """Return how near each policy is to the bound."""
    return [
        runs.share_claim(samples, panel_key(name, load_s), panel_title(name, load_s))
        for name in CATALOGUES
        for load_s in LOAD_S
    ]


EXPERIMENT = Experiment(
    number=6,
    title="benefit over alpha, by catalogue and time to reconfigure",
    where="ours",
    panels=panels(CATALOGUES),
    cases=cases,
    measure=measure,
    claims=claims,
)


#: A catalogue drawn again for each seed.
RANDOM = "random"
_DRAWN_FROM = (*CATALOGUES, RANDOM)


def ratios_cases(settings: Settings) -> list[Cell]:
    """Return all panels, place by place."""
    return cells(_DRAWN_FROM, settings)


def ratios_measure(case: Cell, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by three policies."""
    pool = _pool(case, seed)
    jobs = runs.trace(pool, case.alpha, seed, settings)
    for name in (runs.KEEPING, runs.REPLACING, runs.OURS):
        yield Sample(case.panel, case.alpha, name, seed, runs.benefit_vcpus(pool, jobs, name))


def ratios_claims(samples: Samples) -> list[Claim]:
    """Return the ratio of the means where it is least, and its standard error."""
    return [_ratios_of_panel(samples, name, load_s) for name in _DRAWN_FROM for load_s in LOAD_S]


def _ratios_of_panel(samples: Samples, catalogue: str, load_s: float) -> Claim:
    panel = panel_key(catalogue, load_s)
    found = {float(x): ratio_of_means(samples, panel, x) for x in samples.places(panel, runs.OURS)}
    alpha = min(found, key=lambda x: found[x][0])
    ours = {"least": found[alpha][0], "at alpha": alpha, "mean": float(np.mean([ratio for ratio, _ in found.values()]))}
    if np.isfinite(found[alpha][1]):
        ours["standard error"] = found[alpha][1]
    return Claim(
        key=f"{panel}-over-paper",
        text=f"{panel_title(catalogue, load_s)}: ours over the better of the paper's two, by alpha",
        ours=ours,
        unit="x",
    )


def ratio_of_means(samples: Samples, panel: str, x: float | str) -> tuple[float, float]:
    """Return the mean benefit of ours over that of the better of the two, and its standard error; nan with one seed.

    The error is that of the mean difference of the two on the same traces, as a share of the other's mean.
    """
    other = max((runs.KEEPING, runs.REPLACING), key=lambda name: samples.mean(panel, name, x))
    ours, theirs = (
        np.array([samples.values(panel, name, x)[seed] for seed in sorted(samples.values(panel, runs.OURS, x))])
        for name in (runs.OURS, other)
    )
    error = (ours - theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean() if len(ours) > 1 else np.nan
    return float(ours.mean() / theirs.mean()), float(error)


def _pool(case: Cell, seed: int) -> OnlinePool:
    """Return one card."""
    if case.catalogue != RANDOM:
        return card_pool(reference_catalogue(case.catalogue), case.load_s)
    return random_speedups(card_pool(reference_catalogue("a"), case.load_s), seed)


RATIOS_EXPERIMENT = Experiment(
    number=10,
    title="ours over the better of the paper's two, by catalogue and time to reconfigure",
    where="ours",
    panels=panels(_DRAWN_FROM),
    cases=ratios_cases,
    measure=ratios_measure,
    claims=ratios_claims,
)
