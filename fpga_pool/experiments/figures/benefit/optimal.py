"""Figure 9, ours: share of what the best schedule gains, on traces that are small enough to find it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.bound import windows
from fpga_pool.core.benefit.exact import optimum
from fpga_pool.experiments.benefit.cases import CATALOGUES, LOAD_S, card_pool, random_trace, reference_catalogue
from fpga_pool.experiments.figures.benefit.runs import KEEPING, OURS, REPLACING, benefit_vcpus, curves
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

ALPHAS = (1.0, 2.0, 4.0)
#: How long jobs arrive, with a scale of 1: from empty slots.
SECONDS = 12
#: Times are multiples of a step no shorter than this, or rounded down to it: then the optimum is a bound.
LEAST_STEP_S = 0.25
#: Seconds after which an optimum is given up.
TIME_LIMIT_S = 120.0
#: Share of the traces whose optimum was found, and ours on the trace where it is least.
SOLVED, LEAST = "solved", f"{OURS}, least"


@dataclass(frozen=True, slots=True)
class Case:
    """One load, with one time to reconfigure, on all catalogues."""

    load_s: float
    alpha: float


def cases(settings: Settings) -> list[Case]:
    """Return all panels, place by place."""
    return [Case(load_s, alpha) for load_s in LOAD_S for alpha in settings.thinned(ALPHAS)]


def measure(case: Case, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace on each catalogue by each policy; a sample is the mean of those whose optimum was found."""
    names = curves((KEEPING, REPLACING), settings)
    shares: dict[str, list[float]] = {name: [] for name in names}
    for catalogue in CATALOGUES:
        pool = card_pool(reference_catalogue(catalogue), case.load_s)
        jobs = random_trace(pool, case.alpha, settings.scaled(SECONDS), seed)
        window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
        step_s = max(LEAST_STEP_S, min(case.load_s, 1.0 / case.alpha))
        best_vcpus = optimum(pool, window, jobs.last_arrival_s, step_s=step_s, time_limit_s=TIME_LIMIT_S)
        if best_vcpus:  # where nothing can be gained there is no share
            for name in names:
                shares[name].append(100 * benefit_vcpus(pool, jobs, name) / best_vcpus)
    panel = _panel(case.load_s)
    yield Sample(panel, case.alpha, SOLVED, seed, 100 * len(shares[OURS]) / len(CATALOGUES))
    if shares[OURS]:
        for name, found in shares.items():
            yield Sample(panel, case.alpha, name, seed, float(np.mean(found)))
        yield Sample(panel, case.alpha, LEAST, seed, min(shares[OURS]))


def claims(samples: Samples) -> list[Claim]:
    """Return how near each policy is to the optimum, by how long a load takes."""
    return [_of_load(samples, load_s) for load_s in LOAD_S]


def _of_load(samples: Samples, load_s: float) -> Claim:
    panel = _panel(load_s)
    ours = {
        name: float(np.mean([samples.mean(panel, name, x) for x in samples.places(panel, name)]))
        for name in samples.series(panel)
        if name != LEAST
    }
    least = [min(samples.values(panel, LEAST, x).values()) for x in samples.places(panel, LEAST)]
    return Claim(
        key=f"{panel}-share-of-optimum",
        text=f"all catalogues, loads of {panel} s, from empty slots: mean share of the clairvoyant optimum",
        where="ours",
        paper="not given",
        ours=ours | ({LEAST: min(least)} if least else {}),
        why="" if load_s < 1 else "Half of the trace is over before four slots are loaded: knowing what comes decides.",
    )


def _panel(load_s: float) -> str:
    return f"{load_s:g}"


EXPERIMENT = Experiment(
    number=9,
    title="share of the optimum over alpha, small traces from empty slots",
    where="ours",
    panels=tuple(
        Panel(key=_panel(load_s), title=f"loads of {load_s:g} s", x_label="alpha", y_label="% of the optimum")
        for load_s in LOAD_S
    ),
    cases=cases,
    measure=measure,
    claims=claims,
)
