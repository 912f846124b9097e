"""Figures 3 and 4 of the benefit paper, and 6 and 10, ours: benefit by catalogue, time to reconfigure and alpha."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fpga_pool.experiments.figures.benefit import runs
from fpga_pool.experiments.figures.benefit.runs import (
    CATALOGUES,
    LOADS_S,
    OUR_ALPHAS,
    card_pool,
    random_speedups,
    reference_catalogue,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

# ---- Figures 3 and 4

_WHERE = "section V, figure 3"
#: Largest alpha "when the workload is light", and the range of alphas where slots are scarce but not yet all used for
#: the same function.
LIGHT, MIDDLE = 2.0, (6.0, 12.0)


def _measure(policies: Sequence[str], catalogue: str, alpha: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under each policy."""
    yield from runs.catalogue_benefits(catalogue, catalogue, runs.LOAD_S, alpha, policies, seed, settings)


def _published_claims(samples: Samples) -> Iterator[Claim]:
    """Yield the claims of section V about figure 3."""
    for catalogue in CATALOGUES:
        yield from _published_of_catalogue(samples, catalogue)


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
        }
        | {runs.OURS: runs.mean_ratio(samples, panel, runs.OURS, runs.BASELINE)},
        unit="x",
        why="" if panel == "a" else "It hangs on how speedup and I/O rate go together: figure 8.",
    )
    yield runs.share_claim(samples, panel, f"catalogue {panel.upper()}", (runs.BASELINE, runs.KEEPING, runs.OURS))


#: One panel for each catalogue, and the places on its x axis.
PANELS = tuple(
    Panel(key=name, title=f"catalogue {name.upper()}", x_label=runs.ALPHA, y_label="benefit, vCPUs")
    for name in CATALOGUES
)
_PLACES = dict.fromkeys(CATALOGUES, runs.ALPHAS)

PUBLISHED_EXPERIMENT = Experiment(
    number=3,
    title="benefit over alpha, by throughput and by benefit, without replacement",
    where=_WHERE,
    panels=PANELS,
    places=_PLACES,
    measure=partial(_measure, (runs.BASELINE, runs.KEEPING)),
    claims=_published_claims,
)


_REPLACING_WHERE = "section V, figure 4"


def _replacing_claims(samples: Samples) -> Iterator[Claim]:
    """Yield the claims of section V about figure 4, with our policy for comparison."""
    for panel in CATALOGUES:
        title = f"catalogue {panel.upper()}"
        yield Claim(
            key=f"{panel}-replacement-gains",
            text=f"{title}: gain of replacement, mean over alpha",
            where=_REPLACING_WHERE,
            paper="38.60 %",
            ours={
                name: 100 * (runs.mean_ratio(samples, panel, name, runs.KEEPING) - 1)
                for name in (runs.REPLACING, runs.OURS)
            },
            why="The hold decides: figure 8.",
        )
        yield runs.least_claim(samples, panel, title)
        yield runs.share_claim(samples, panel, title)


REPLACING_EXPERIMENT = Experiment(
    number=4,
    title="benefit over alpha, with and without replacement; hold 5 s, loads of 0.05 s",
    where=_REPLACING_WHERE,
    panels=PANELS,
    places=_PLACES,
    measure=partial(_measure, (runs.KEEPING, runs.REPLACING)),
    claims=_replacing_claims,
)


# ---- Figures 6 and 10: benefit and its ratio to the paper's, by catalogue, time to reconfigure and alpha


class Cell(NamedTuple):
    """A catalogue, with one time to reconfigure."""

    catalogue: str
    load_s: float

    @property
    def panel(self) -> str:
        """Return the key of its panel."""
        return f"{self.catalogue}-{self.load_s:g}"

    @property
    def title(self) -> str:
        """Return the title of its panel."""
        return f"catalogue {self.catalogue.upper()}, loads of {self.load_s:g} s"


_CELLS = [Cell(name, load_s) for name in CATALOGUES for load_s in LOADS_S]


def _panels(cells: Iterable[Cell]) -> tuple[Panel, ...]:
    return tuple(
        Panel(key=cell.panel, title=cell.title, x_label=runs.ALPHA, y_label="benefit, vCPUs") for cell in cells
    )


def _measure_cell(cell: Cell, alpha: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under each policy."""
    policies = runs.KEEPING, runs.REPLACING
    yield from runs.catalogue_benefits(cell.panel, cell.catalogue, cell.load_s, alpha, policies, seed, settings)


def _claims(samples: Samples) -> list[Claim]:
    """Return the mean share of the bound that each policy reaches, by cell."""
    return [runs.share_claim(samples, cell.panel, cell.title) for cell in _CELLS]


EXPERIMENT = Experiment(
    number=6,
    title="benefit over alpha, by catalogue and time to reconfigure",
    where="ours",
    panels=_panels(_CELLS),
    places=dict.fromkeys(_CELLS, OUR_ALPHAS),
    measure=_measure_cell,
    claims=_claims,
)


#: A catalogue that is drawn separately for each seed.
RANDOM = "random"
_DRAWN_FROM = [*_CELLS, *(Cell(RANDOM, load_s) for load_s in LOADS_S)]


def _measure_ratios(cell: Cell, alpha: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under three policies, on one card."""
    policies = runs.KEEPING, runs.REPLACING, runs.OURS
    if cell.catalogue == RANDOM:
        pool = random_speedups(card_pool(reference_catalogue("a"), cell.load_s), seed)
        jobs = runs.trace(pool, alpha, seed, settings)
        found = [runs.benefit_vcpus(pool, jobs, name) for name in policies]
    else:
        seconds = settings.scaled(runs.SECONDS)
        found = [runs.on_card_vcpus(*cell, alpha, name, seed, seconds) for name in policies]
    for name, value in zip(policies, found, strict=True):
        yield Sample(cell.panel, alpha, name, seed, value)


def _ratio_claim(samples: Samples, cell: Cell) -> Claim:
    """Return the smallest ratio of the means over alpha, with its standard error."""
    panel = cell.panel
    found = {float(x): ratio_of_means(samples, panel, x) for x in samples.places(panel, runs.OURS)}
    alpha = min(found, key=lambda x: found[x][0])
    ours = {"least": found[alpha][0], "at alpha": alpha, "mean": float(np.mean([ratio for ratio, _ in found.values()]))}
    if np.isfinite(found[alpha][1]):
        ours["standard error"] = found[alpha][1]
    return Claim(
        key=f"{panel}-over-paper",
        text=f"{cell.title}: ours over the better of the paper's two, by alpha",
        ours=ours,
        unit="x",
    )


def ratio_of_means(samples: Samples, panel: str, x: float | str) -> tuple[float, float]:
    """Return the ratio of our mean benefit to that of the better of the two, and its standard error; nan with one seed.

    The error is that of the mean difference on the same traces, as a share of the other policy's mean.
    """
    other = max((runs.KEEPING, runs.REPLACING), key=lambda name: samples.mean(panel, name, x))
    ours, theirs = (
        np.array([samples.values(panel, name, x)[seed] for seed in sorted(samples.values(panel, runs.OURS, x))])
        for name in (runs.OURS, other)
    )
    error = (ours - theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean() if len(ours) > 1 else np.nan
    return float(ours.mean() / theirs.mean()), float(error)


RATIOS_EXPERIMENT = Experiment(
    number=10,
    title="ours over the better of the paper's two, by catalogue and time to reconfigure",
    where="ours",
    panels=_panels(_DRAWN_FROM),
    places=dict.fromkeys(_DRAWN_FROM, OUR_ALPHAS),
    measure=_measure_ratios,
    claims=lambda samples: [_ratio_claim(samples, cell) for cell in _DRAWN_FROM],
)
