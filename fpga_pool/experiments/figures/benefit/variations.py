"""Figures 5, 7 and 8, ours: random catalogues, changing mixes, and the causes of the two results of section V.

How much scheduling by benefit gains over scheduling by throughput depends on the correlation of speedup and I/O rate in
the catalogue.  How much replacement gains depends on how long a slot keeps its function without it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.benefit.paper import Benefit, HoldParams
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.figures.benefit import runs
from fpga_pool.experiments.figures.benefit.runs import (
    CATALOGUES,
    LOADS_S,
    card_pool,
    random_speedups,
    reference_catalogue,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.sim.benefit.live import simulate
from fpga_pool.sim.benefit.trace import Trace

CORRELATION, HOLD = "correlation", "hold"
CORRELATIONS = (-1.0, -0.5, 0.0, 0.5, 1.0)
#: The last one is longer than any trace.
HOLDS_S = (0.0, 1.0, 2.0, 5.0, 10.0, 1000.0)
ALPHAS = (2.0, 4.0, 8.0, 16.0)
#: Catalogues for each correlation, with a scale of 1.
DRAWN = 20
#: Seconds during which jobs arrive, for these and for random catalogues.
SHORT_S = 60


def _measure_deciding(panel: str, x: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Yield the ratios of mean benefits, by the correlation or by the hold."""
    if panel == CORRELATION:
        pool = card_pool(reference_catalogue("a"), runs.LOAD_S)
        pools = [correlated(pool, x, 1000 * seed + i) for i in range(settings.scaled(DRAWN))]
        for alpha in ALPHAS:
            ratios = []
            for i, drawn in enumerate(pools):
                jobs = runs.trace(drawn, alpha, 1000 * seed + i, settings, seconds=SHORT_S)
                ratios.append(
                    runs.benefit_vcpus(drawn, jobs, runs.KEEPING) / runs.benefit_vcpus(drawn, jobs, runs.BASELINE)
                )
            yield Sample(CORRELATION, x, f"alpha {alpha:g}", seed, float(np.mean(ratios)))
        return
    keeping = Benefit(HoldParams(hold_s=x))
    for name in CATALOGUES:
        pool = card_pool(reference_catalogue(name), runs.LOAD_S)
        traces = [runs.trace(pool, alpha, seed, settings) for alpha in ALPHAS]
        ratios = [
            runs.benefit_vcpus(pool, jobs, runs.REPLACING) / runs.benefit_vcpus(pool, jobs, keeping) for jobs in traces
        ]
        yield Sample(HOLD, x, f"catalogue {name.upper()}", seed, float(np.mean(ratios)))


def correlated(pool: OnlinePool, correlation: float, seed: int) -> OnlinePool:
    """Return the pool with speedups of 2 to 30 and I/O rates of 0.1 to 0.8 GB/s that have this correlation."""
    rng = np.random.default_rng(seed)
    functions = len(pool.functions)
    one, other = rng.standard_normal((2, functions))
    other = correlation * one + np.sqrt(1 - correlation**2) * other
    ranks = (np.argsort(np.argsort(values)) / (functions - 1) for values in (one, other))
    speedup, io_gbps = (
        low * (high / low) ** rank for rank, (low, high) in zip(ranks, ((2.0, 30.0), (0.1, 0.8)), strict=True)
    )
    return replace(pool, speedup=speedup, io_bps=np.tile(8e9 * io_gbps, (len(pool.load_s), 1)))


def _deciding_claims(samples: Samples) -> list[Claim]:
    """Return how both results of section V depend on the correlation and on the hold."""
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
    places={CORRELATION: CORRELATIONS, HOLD: HOLDS_S},
    measure=_measure_deciding,
    claims=_deciding_claims,
)


# ---- Figure 5: random catalogues and mixes

#: Number of catalogues, each drawn separately, with a scale of 1.
RANDOM_CATALOGUES = 20


def _measure_random(load_s: float, alpha: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate each catalogue under each policy; a sample is the policy's mean share of the bound over catalogues."""
    shares: dict[str, list[float]] = {}
    pool = card_pool(reference_catalogue("a"), load_s)
    for catalogue in range(settings.scaled(RANDOM_CATALOGUES)):
        drawn = random_speedups(pool, 1000 * seed + catalogue)
        jobs = runs.trace(drawn, alpha, 1000 * seed + catalogue, settings, seconds=SHORT_S)
        names = runs.curves((runs.BASELINE, runs.KEEPING, runs.REPLACING), settings)
        found = {sample.series: sample.value for sample in runs.benefits("", 0.0, names, drawn, jobs, seed)}
        for name in names if found[runs.BOUND] else ():  # in a short trace there may be no arrivals
            shares.setdefault(name, []).append(100 * found[name] / found[runs.BOUND])
    for name, values in shares.items():
        yield Sample(_random_panel(load_s), alpha, name, seed, float(np.mean(values)))


def _random_claims(samples: Samples) -> Iterator[Claim]:
    """Yield the claims about catalogues in general."""
    for panel in map(_random_panel, LOADS_S):
        if not samples.places(panel, runs.OURS):
            continue
        yield Claim(
            key=f"{panel}-share-of-bound",
            text=f"random catalogues, loads of {panel} s: mean share of the bound",
            ours={name: samples.overall(panel, name) for name in samples.series(panel)},
        )
        yield Claim(
            key=f"{panel}-ratios",
            text=f"random catalogues, loads of {panel} s: ratios of mean shares",
            where="section V",
            paper="2.52 and 1.386",
            ours={
                "benefit over throughput": runs.mean_ratio(samples, panel, runs.KEEPING, runs.BASELINE),
                "replacement over none": runs.mean_ratio(samples, panel, runs.REPLACING, runs.KEEPING),
                "ours over replacement": runs.mean_ratio(samples, panel, runs.OURS, runs.REPLACING),
            },
            unit="x",
            why="Both are properties of a catalogue: figure 8.",
        )


def _random_panel(load_s: float) -> str:
    return f"{load_s:g}"


RANDOM_EXPERIMENT = Experiment(
    number=5,
    title="share of the bound over alpha, means over random catalogues",
    where="ours",
    panels=tuple(
        Panel(key=_random_panel(load_s), title=f"loads of {load_s:g} s", x_label=runs.ALPHA, y_label="% of the bound")
        for load_s in LOADS_S
    ),
    places=dict.fromkeys(LOADS_S, ALPHAS),
    measure=_measure_random,
    claims=_random_claims,
)


# ---- Figure 7: a mix of functions that changes, and a tenant whose workload loses its benefit (section IV.C)

#: Seconds after which the mix of functions is drawn again.
DRIFT_S = 30.0
MIX, TENANT = "mix", "tenant"
#: A tenant, the functions (the best of catalogue A) that lose benefit for it at half-time, and the share that remains.
CHANGING, CHANGED, REMAINS = "changing", ("stereo", "optical_flow"), 0.1
CHANGING_LOAD_S = 0.5


def _measure_changing(panel: str, alpha: float, seed: int, settings: Settings) -> Iterator[Sample]:
    """Simulate one trace under each policy."""
    pool = card_pool(reference_catalogue("a"), CHANGING_LOAD_S)
    if panel == MIX:
        jobs = runs.trace(pool, alpha, seed, settings, drift_s=DRIFT_S)
        yield from runs.benefits(MIX, alpha, runs.curves((runs.KEEPING, runs.REPLACING), settings), pool, jobs, seed)
        return
    jobs = losing(pool, runs.trace(pool, alpha, seed, settings, seconds=2 * runs.SECONDS), seed)
    for name in runs.curves((runs.REPLACING,), settings):
        for learn in (True, False):
            series = name if learn else f"{name}, catalogue only"
            yield Sample(TENANT, alpha, series, seed, second_half_vcpus(pool, jobs, name, learn=learn))


def losing(pool: OnlinePool, jobs: Trace, seed: int) -> Trace:
    """Return the jobs divided between two similar tenants, one of which loses its benefit at half-time."""
    changes = np.random.default_rng((seed, 7)).random(len(jobs.jobs)) < 0.5
    changed = np.isin(jobs.function, [pool.functions.index(name) for name in CHANGED])
    late = jobs.arrival_s > jobs.last_arrival_s / 2
    return replace(
        jobs,
        project=tuple(CHANGING if mine else "steady" for mine in changes.tolist()),
        speedup=pool.speedup[jobs.function] * np.where(changes & changed & late, REMAINS, 1.0),
    )


def second_half_vcpus(pool: OnlinePool, jobs: Trace, policy: str, *, learn: bool) -> float:
    """Return the mean benefit after half-time."""
    half_s = jobs.last_arrival_s / 2
    whole, first = (
        simulate(pool, jobs, load_policy("online", policy), horizon_s=horizon_s, keep_stretches=False, learn=learn)
        for horizon_s in (2 * half_s, half_s)
    )
    return 2 * whole.mean_benefit_vcpus - first.mean_benefit_vcpus


def _changing_claims(samples: Samples) -> list[Claim]:
    """Return the claims of section IV.C."""
    return [
        runs.share_claim(samples, MIX, f"the mix changes every {DRIFT_S:g} s"),
        Claim(
            key="tenant-learning-gains",
            text="a tenant's workload changes and its benefit declines: what it gains to learn that",
            where="section IV.C",
            paper="reasonable to replace it",
            ours={
                name: 100 * (runs.mean_ratio(samples, TENANT, name, f"{name}, catalogue only") - 1)
                for name in (runs.REPLACING, runs.OURS)
            },
        ),
    ]


CHANGING_EXPERIMENT = Experiment(
    number=7,
    title="catalogue A, loads of 0.5 s, while what comes changes",
    where="section IV.C",
    panels=(
        Panel(key=MIX, title="the mix changes", x_label=runs.ALPHA, y_label="benefit, vCPUs"),
        Panel(key=TENANT, title="a tenant has lost its benefit", x_label=runs.ALPHA, y_label="benefit, vCPUs"),
    ),
    places=dict.fromkeys((MIX, TENANT), ALPHAS),
    measure=_measure_changing,
    claims=_changing_claims,
)
