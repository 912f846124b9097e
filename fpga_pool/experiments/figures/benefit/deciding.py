"""Figure 8, ours: what decides the two results of section V.

By how much scheduling by benefit beats scheduling by throughput depends on how speedup and I/O rate go together in the
catalogue.  What replacement gains depends on how long a slot keeps its function without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.benefit.paper import Benefit, HoldParams
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.benefit import CATALOGUES, card_pool, reference_catalogue
from fpga_pool.experiments.figures.benefit.runs import BASELINE, KEEPING, LOAD_S, REPLACING, benefit_vcpus, trace
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings

CORRELATION, HOLD = "correlation", "hold"
CORRELATIONS = (-1.0, -0.5, 0.0, 0.5, 1.0)
#: The last is longer than any trace.
HOLDS_S = (0.0, 1.0, 2.0, 5.0, 10.0, 1000.0)
ALPHAS = (2.0, 4.0, 8.0, 16.0)
#: Catalogues for each correlation, with a scale of 1.
DRAWN = 20
SECONDS = 60


@dataclass(frozen=True, slots=True)
class DecidingCase:
    """One place on the x axis of a panel."""

    panel: str
    x: float


def deciding_cases(settings: Settings) -> list[DecidingCase]:
    """Return both panels, place by place."""
    return [
        *(DecidingCase(CORRELATION, x) for x in settings.thinned(CORRELATIONS)),
        *(DecidingCase(HOLD, x) for x in settings.thinned(HOLDS_S)),
    ]


def deciding_measure(case: DecidingCase, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield ratios of mean benefits."""
    if case.panel == CORRELATION:
        pool = card_pool(reference_catalogue("a"), LOAD_S)
        pools = [correlated(pool, case.x, 1000 * seed + i) for i in range(settings.scaled(DRAWN))]
        for alpha in ALPHAS:
            ratios = []
            for i, drawn in enumerate(pools):
                jobs = trace(drawn, alpha, 1000 * seed + i, settings, seconds=SECONDS)
                ratios.append(benefit_vcpus(drawn, jobs, KEEPING) / benefit_vcpus(drawn, jobs, BASELINE))
            yield Sample(CORRELATION, case.x, f"alpha {alpha:g}", seed, float(np.mean(ratios)))
        return
    keeping = Benefit(HoldParams(hold_s=case.x))
    for name in CATALOGUES:
        pool = card_pool(reference_catalogue(name), LOAD_S)
        traces = [trace(pool, alpha, seed, settings) for alpha in ALPHAS]
        ratios = [benefit_vcpus(pool, jobs, REPLACING) / benefit_vcpus(pool, jobs, keeping) for jobs in traces]
        yield Sample(HOLD, case.x, f"catalogue {name.upper()}", seed, float(np.mean(ratios)))


def correlated(pool: OnlinePool, correlation: float, seed: int) -> OnlinePool:
    """Return the pool with speedups between 2 and 30 and I/O rates between 0.1 and 0.8 GB/s that go together so."""
    rng = np.random.default_rng(seed)
    functions = len(pool.functions)
    one, other = rng.standard_normal((2, functions))
    other = correlation * one + np.sqrt(1 - correlation**2) * other
    ranks = (np.argsort(np.argsort(values)) / (functions - 1) for values in (one, other))
    speedup, io_gbps = (
        low * (high / low) ** rank for rank, (low, high) in zip(ranks, ((2.0, 30.0), (0.1, 0.8)), strict=True)
    )
    return replace(pool, speedup=speedup, io_bps=np.tile(8e9 * io_gbps, (len(pool.load_s), 1)))


def deciding_claims(samples: Samples) -> list[Claim]:
    """Return what both results depend on."""
    crowded = [f"alpha {alpha:g}" for alpha in ALPHAS if alpha > 2]
    places = samples.places(CORRELATION, crowded[0])
    return [
        Claim(
            key="benefit-over-throughput",
            text="benefit over throughput by the correlation of speedup and I/O rate, means over alpha of 4 to 16",
            where="section V, figure 3",
            paper="2.52",
            ours={
                f"correlation {float(x):g}": float(np.mean([samples.mean(CORRELATION, name, x) for name in crowded]))
                for x in places
            },
            unit="x",
        ),
        *(
            Claim(
                key=f"replacement-by-hold-{name[-1].lower()}",
                text=f"{name}: gain of replacement by the hold of Algorithm 1",
                where="section V, figure 4",
                paper="38.60 %",
                ours={
                    f"hold {float(x):g} s": 100 * (samples.mean(HOLD, name, x) - 1) for x in samples.places(HOLD, name)
                },
            )
            for name in samples.series(HOLD)
        ),
    ]


DECIDING_EXPERIMENT = Experiment(
    number=8,
    title="what decides both results of section V",
    where="section V",
    panels=(
        Panel(key=CORRELATION, title="benefit over throughput", x_label="correlation of speedup and I/O", y_label="x"),
        Panel(key=HOLD, title="replacement over none", x_label="hold, s", y_label="x"),
    ),
    cases=deciding_cases,
    measure=deciding_measure,
    claims=deciding_claims,
)
