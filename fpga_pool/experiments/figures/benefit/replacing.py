"""Figure 4: with and without replacement (section V, second experiment)."""

from collections.abc import Iterator

from fpga_pool.experiments.benefit.cases import CATALOGUES, card_pool, reference_catalogue
from fpga_pool.experiments.figures.benefit.metric import Case, cases
from fpga_pool.experiments.figures.benefit.runs import (
    BOUND,
    KEEPING,
    LOAD_S,
    OURS,
    REPLACING,
    benefits,
    curves,
    mean_ratio,
    share_percent,
    trace,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

_WHERE = "section V, figure 4"


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    pool = card_pool(reference_catalogue(case.catalogue), LOAD_S)
    jobs = trace(pool, case.alpha, seed, settings)
    yield from benefits(case.catalogue, case.alpha, curves((KEEPING, REPLACING), settings), pool, jobs, seed)


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
    places = samples.places(panel, OURS)
    yield Claim(
        key=f"{panel}-least-over-paper",
        text=f"catalogue {panel.upper()}: ours over the better of both, at the alpha where that is least",
        where="ours",
        paper="not given",
        ours={
            OURS: min(
                samples.mean(panel, OURS, x) / max(samples.mean(panel, name, x) for name in (KEEPING, REPLACING))
                for x in places
            )
        },
        unit="x",
    )
    yield Claim(
        key=f"{panel}-share-of-bound",
        text=f"catalogue {panel.upper()}: mean share of the bound",
        where="ours",
        paper="not given",
        ours={name: share_percent(samples, panel, name) for name in samples.series(panel) if name != BOUND},
    )


EXPERIMENT = Experiment(
    number=4,
    title="benefit over alpha, with and without replacement; hold 5 s, loads of 0.05 s",
    where=_WHERE,
    panels=tuple(
        Panel(key=name, title=f"catalogue {name.upper()}", x_label="alpha", y_label="benefit, vCPUs")
        for name in CATALOGUES
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
