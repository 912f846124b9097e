"""Pools, catalogues and traces of the figures of the benefit paper; simulations, and the values drawn from them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.conf.policies import policy_as
from fpga_pool.core.benefit.bound import upper_bound, windows
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.experiments.figures.figure import Claim, Sample, Samples, Settings, X
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.sim.benefit.live import simulate
from fpga_pool.sim.benefit.trace import Trace, uniform_pool

CATALOGUES = ("a", "b", "c")
#: Axis label of alpha: the ideal time of a job over the interval between two jobs, per card.
ALPHA = "alpha: ideal time of a job / interval"
#: Alphas, and times to reconfigure, of our figures.
OUR_ALPHAS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
LOADS_S = (0.05, 0.5, 2.0)
BOARD = "card"


def reference_catalogue(name: str) -> Catalogue:
    """Return the reference catalogue `a`, `b` or `c`."""
    return load_catalogue(Path(__file__).with_name(f"catalogue_{name}.toml"))


def card_pool(catalogue: Catalogue, load_s: float, *, hosts: int = 1, cards: int = 1) -> OnlinePool:
    """Return a pool of equal cards whose slots take `load_s` to reconfigure."""
    pool = uniform_pool(catalogue, catalogue.board(BOARD), hosts, cards)
    return replace(pool, load_s=np.full(len(pool.load_s), load_s))


def random_trace(
    pool: OnlinePool,
    alpha: float,
    seconds: float,
    seed: int,
    *,
    drift_s: float | None = None,
    poisson: bool = False,
) -> Trace:
    """Return jobs of random functions that arrive every 1 / alpha / cards s, work for one second and wait for one.

    The load of each card is `alpha`, ideal time over interval (section V); jobs arrive for `seconds`.  The mix of
    functions is drawn again every `drift_s` seconds; None = all functions equally likely throughout.  With `poisson`
    the intervals are exponential instead of equal.
    """
    rng = np.random.default_rng(seed)
    interval_s = 1.0 / alpha / len(pool.dma_bps)
    count, functions = int(seconds / interval_s), len(pool.functions)
    steps_s = rng.exponential(interval_s, count) if poisson else np.full(count, interval_s)
    arrival_s = np.cumsum(steps_s)
    chosen = rng.random(count)
    if drift_s is None:
        function = (chosen * functions).astype(np.int64)
    else:
        phase = (arrival_s // drift_s).astype(np.int64)
        mixes = rng.dirichlet(np.ones(functions), int(phase[-1]) + 1).cumsum(axis=1)
        function = np.minimum((chosen[:, None] > mixes[phase]).sum(axis=1), functions - 1)
    return Trace(
        jobs=tuple(f"j{i}" for i in range(count)),
        function=function,
        arrival_s=arrival_s,
        work_s=np.ones(count),
        patience_s=np.ones(count),
    )


def random_speedups(pool: OnlinePool, seed: int) -> OnlinePool:
    """Return the pool with random speedups and I/O rates of its functions, some of which are preemptible.

    Speedups are log-uniform between 1.5 and 40, I/O rates between 0.05 and 1.2 GB/s: wider ranges than in the three
    catalogues, and independent of each other.
    """
    rng = np.random.default_rng(seed)
    functions = len(pool.functions)
    io_bps = 8e9 * np.exp(rng.uniform(np.log(0.05), np.log(1.2), functions))
    preemptible = rng.random(functions) < 0.3
    return replace(
        pool,
        speedup=np.exp(rng.uniform(np.log(1.5), np.log(40.0), functions)),
        io_bps=np.tile(io_bps, (len(pool.load_s), 1)),
        preemptible=preemptible,
        progress_kept=preemptible,
    )


#: Our policy, Algorithms 1 and 2, the baseline, and the curve of the bound.
OURS, KEEPING, REPLACING, BASELINE, BOUND = "benefit_plus", "benefit", "benefit_replace", "throughput", "bound"
#: Alphas of the paper's figures; the places on its axes are not in its text.
ALPHAS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
#: Seconds during which jobs arrive, with a scale of 1.
SECONDS = 120
#: Duration of a load in section V.
LOAD_S = 0.05


def trace(
    pool: OnlinePool,
    alpha: float,
    seed: int,
    settings: Settings,
    *,
    drift_s: float | None = None,
    seconds: int = SECONDS,
) -> Trace:
    """Return the jobs of one run: equal intervals with even seeds, as in the paper, random ones with odd seeds."""
    return random_trace(pool, alpha, settings.scaled(seconds), seed, drift_s=drift_s, poisson=bool(seed % 2))


def curves(own: Sequence[str], settings: Settings) -> list[str]:
    """Return the policies of a panel: its own, further requested ones, and ours."""
    return list(dict.fromkeys([*own, *settings.also, OURS]))


def benefit_vcpus(pool: OnlinePool, jobs: Trace, policy: str | OnlinePolicy) -> float:
    """Return the mean benefit of a policy in vCPUs."""
    rule = policy_as("online", policy) if isinstance(policy, str) else policy
    return simulate(pool, jobs, rule, keep_stretches=False).mean_benefit_vcpus


@cache
def on_card_vcpus(catalogue: str, load_s: float, alpha: float, policy: str, seed: int, seconds: int) -> float:
    """Return a policy's mean benefit, or the bound, on a trace and one card of a catalogue; several figures use it."""
    pool = card_pool(reference_catalogue(catalogue), load_s)
    jobs = random_trace(pool, alpha, seconds, seed, poisson=bool(seed % 2))
    return bound_vcpus(pool, jobs) if policy == BOUND else benefit_vcpus(pool, jobs, policy)


def bound_vcpus(pool: OnlinePool, jobs: Trace) -> float:
    """Return an upper bound on the mean benefit of any schedule, in vCPUs."""
    window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
    return upper_bound(pool, window, jobs.last_arrival_s)


def benefits(panel: str, x: X, policies: Sequence[str], pool: OnlinePool, jobs: Trace, seed: int) -> Iterator[Sample]:
    """Measure the benefit of each policy on one trace, and the bound."""
    for name in policies:
        yield Sample(panel, x, name, seed, benefit_vcpus(pool, jobs, name))
    yield Sample(panel, x, BOUND, seed, bound_vcpus(pool, jobs))


def mean_ratio(samples: Samples, panel: str, series: str, over: str, places: Sequence[X] | None = None) -> float:
    """Return the mean over all places, or some, of the ratio of two curves."""
    chosen = samples.places(panel, series) if places is None else places
    return float(np.mean([samples.ratio(panel, series, over, x) for x in chosen]))


def share_percent(samples: Samples, panel: str, series: str) -> float:
    """Return the mean share of the bound over all places."""
    return 100.0 * mean_ratio(samples, panel, series, BOUND)


def catalogue_benefits(
    panel: str, catalogue: str, load_s: float, alpha: float, policies: Sequence[str], seed: int, settings: Settings
) -> Iterator[Sample]:
    """Measure each policy on one trace, on one card of a reference catalogue, and the bound."""
    for name in (*curves(policies, settings), BOUND):
        value = on_card_vcpus(catalogue, load_s, alpha, name, seed, settings.scaled(SECONDS))
        yield Sample(panel, alpha, name, seed, value)


def share_claim(samples: Samples, panel: str, subject: str, policies: Sequence[str] | None = None) -> Claim:
    """Return the mean share of the bound of some policies, or of all."""
    names = [name for name in samples.series(panel) if name != BOUND] if policies is None else policies
    return Claim(
        key=f"{panel}-share-of-bound",
        text=f"{subject}: mean share of the bound",
        ours={name: share_percent(samples, panel, name) for name in names},
    )


def least_claim(samples: Samples, panel: str, subject: str) -> Claim:
    """Return the smallest ratio, over alpha, of our policy to the better of Algorithms 1 and 2."""
    ratios = (
        samples.mean(panel, OURS, x) / max(samples.mean(panel, name, x) for name in (KEEPING, REPLACING))
        for x in samples.places(panel, OURS)
    )
    return Claim(
        key=f"{panel}-least-over-paper",
        text=f"{subject}: ours over the better of the paper's two, at the alpha where that is least",
        ours={OURS: min(ratios)},
        unit="x",
    )
