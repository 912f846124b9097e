"""Runs an online policy over a trace, of up to millions of jobs.

The occupancy and the policy are those of the live scheduler.  What is around them follows the paper's model (`shell`),
or the rules of a live pool, its faults included (`live`).
"""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.plus import TenantLimit
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.sim.benefit.live import LiveShell, PoolRules
from fpga_pool.sim.benefit.shell import Shell
from fpga_pool.sim.benefit.trace import BOTH, CPU, FPGA, Record, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a trace."""

    #: Mean over the horizon of the sum of the speedups of what runs on slots (equation 1).
    mean_benefit_vcpus: float
    horizon_s: float
    reconfigurations: int
    jobs_on_fpga: int
    jobs_on_cpu: int
    record: Record


def simulate(
    pool: OnlinePool,
    trace: Trace,
    policy: OnlinePolicy,
    *,
    horizon_s: float | None = None,
    interval_s: float = 0.1,
    seed: int = 0,
    keep_stretches: bool = True,
    tenant_share: float = 1.0,
    learn: bool = True,
    preloads: bool = True,
    rules: PoolRules | None = None,
) -> Outcome:
    """Return what a policy makes of a trace: by the paper's model, or with `rules` as a live pool does.

    Benefit counts up to `horizon_s`, by default the last arrival.  A project has at most `tenant_share` of all slots at
    a time.  The policy knows the catalogue, and with `learn` what jobs that ended have really gained.  Without
    `preloads` no function is loaded that no job waits for.  The settings of a live pool say both themselves.
    """
    horizon_s = trace.last_arrival_s if horizon_s is None else horizon_s
    about = pool, trace, policy, horizon_s, np.random.default_rng(seed), keep_stretches, learn
    if rules is None:
        shell = Shell(*about, TenantLimit(pool.slots, tenant_share) if tenant_share < 1 else None)
        shell.view.preloads = preloads
    elif tenant_share < 1 or not preloads:
        raise ValueError("tenant_share, preloads: with rules, their settings say so")
    else:
        shell = LiveShell(*about, rules)
    with _no_collector():
        shell.run(interval_s)
    where = shell.record.where
    return Outcome(
        mean_benefit_vcpus=shell.benefit / horizon_s if horizon_s > 0 else 0.0,
        horizon_s=horizon_s,
        reconfigurations=shell.record.reconfigurations,
        jobs_on_fpga=int(((where == FPGA) | (where == BOTH)).sum()),
        jobs_on_cpu=int((where == CPU).sum()),
        record=shell.record,
    )


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Let no garbage be looked for: a simulation makes no cycles, and to walk a million jobs takes tens of ms."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
