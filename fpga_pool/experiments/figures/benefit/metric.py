"""Figure 3: scheduling by throughput and by benefit (section V, first experiment)."""

from collections.abc import Iterator
from dataclasses import dataclass

from fpga_pool.experiments.benefit.cases import CATALOGUES, card_pool, reference_catalogue
from fpga_pool.experiments.figures.benefit.runs import (
    ALPHAS,
    BASELINE,
    KEEPING,
    LOAD_S,
    OURS,
    benefits,
    curves,
    mean_ratio,
    share_percent,
    trace,
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
    pool = card_pool(reference_catalogue(case.catalogue), LOAD_S)
    jobs = trace(pool, case.alpha, seed, settings)
    yield from benefits(case.catalogue, case.alpha, curves((BASELINE, KEEPING), settings), pool, jobs, seed)


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
    yield Claim(
        key=f"{panel}-share-of-bound",
        text=f"catalogue {panel.upper()}: mean share of the bound",
        where="ours",
        paper="not given",
        ours={name: share_percent(samples, panel, name) for name in (BASELINE, KEEPING, OURS)},
    )


EXPERIMENT = Experiment(
    number=3,
    title="benefit over alpha, by throughput and by benefit, without replacement",
    where=_WHERE,
    panels=tuple(
        Panel(key=name, title=f"catalogue {name.upper()}", x_label="alpha", y_label="benefit, vCPUs")
        for name in CATALOGUES
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
