"""Pools, catalogues and traces of the experiments of the benefit paper."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.sim.benefit.trace import Trace, uniform_pool

CATALOGUES = ("a", "b", "c")
#: Ideal time of a job over the interval between two jobs, per card.
ALPHAS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
LOAD_S = (0.05, 0.5, 2.0)
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
    work_s: float = 1.0,
    patience_s: float = 1.0,
    poisson: bool = False,
) -> Trace:
    """Return jobs that arrive every work_s / alpha / cards, each of a random function.

    Parameters
    ----------
    pool
        Whose functions, and how many cards: the load of each card is alpha.
    alpha
        Ideal time over interval (section V).
    seconds
        How long jobs arrive.
    seed
        Of all random choices.
    drift_s
        Seconds after which the mix of functions is drawn again; None = all functions alike, for ever.
    work_s, patience_s
        Of each job.
    poisson
        Draw the intervals, instead of making them equal.

    """
    rng = np.random.default_rng(seed)
    interval_s = work_s / alpha / len(pool.dma_bps)
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
        work_s=np.full(count, work_s),
        patience_s=np.full(count, patience_s),
    )


def random_speedups(pool: OnlinePool, seed: int) -> OnlinePool:
    """Return the pool with functions of random speedup, I/O rate, and of which some may be stopped.

    Speedups are log-uniform between 1.5 and 40, I/O rates between 0.05 and 1.2 GB/s: wider than those of all three
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
