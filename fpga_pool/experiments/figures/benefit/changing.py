"""Figure 7, ours: a mix of functions that changes, and a tenant whose workload loses its benefit (section IV.C)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.benefit import card_pool, reference_catalogue
from fpga_pool.experiments.figures.benefit.runs import (
    KEEPING,
    OURS,
    REPLACING,
    SECONDS,
    benefits,
    curves,
    mean_ratio,
    share_claim,
    trace,
)
from fpga_pool.experiments.figures.figure import Claim, Experiment, Panel, Sample, Samples, Settings
from fpga_pool.sim.benefit.simulator import simulate
from fpga_pool.sim.benefit.trace import Trace

ALPHAS = (2.0, 4.0, 8.0, 16.0)
#: Seconds after which the mix of functions is drawn again.
DRIFT_S = 30.0
MIX, TENANT = "mix", "tenant"
#: The tenant whose jobs gain a tenth from half-time on, and of which functions: the best of catalogue A.
CHANGING, CHANGED, REMAINS = "changing", ("stereo", "optical_flow"), 0.1
LOAD_S = 0.5


@dataclass(frozen=True, slots=True)
class ChangingCase:
    """One load of one panel."""

    panel: str
    alpha: float


def changing_cases(settings: Settings) -> list[ChangingCase]:
    """Return both panels, place by place."""
    return [ChangingCase(panel, alpha) for panel in (MIX, TENANT) for alpha in settings.thinned(ALPHAS)]


def changing_measure(case: ChangingCase, seed: int, settings: Settings) -> Iterator[Sample]:
    """Run one trace by each policy."""
    pool = card_pool(reference_catalogue("a"), LOAD_S)
    if case.panel == MIX:
        jobs = trace(pool, case.alpha, seed, settings, drift_s=DRIFT_S)
        yield from benefits(MIX, case.alpha, curves((KEEPING, REPLACING), settings), pool, jobs, seed)
        return
    jobs = losing(pool, trace(pool, case.alpha, seed, settings, seconds=2 * SECONDS), seed)
    for name in curves((REPLACING,), settings):
        for learn in (True, False):
            series = name if learn else f"{name}, catalogue only"
            yield Sample(TENANT, case.alpha, series, seed, second_half_vcpus(pool, jobs, name, learn=learn))


def losing(pool: OnlinePool, jobs: Trace, seed: int) -> Trace:
    """Return the jobs as those of two tenants alike, one of which loses its benefit at half-time."""
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


def changing_claims(samples: Samples) -> list[Claim]:
    """Return what section IV.C says."""
    return [
        share_claim(samples, MIX, f"the mix changes every {DRIFT_S:g} s"),
        Claim(
            key="tenant-learning-gains",
            text="a tenant's workload changes and its benefit declines: what it gains to learn that",
            where="section IV.C",
            paper="reasonable to replace it",
            ours={
                name: 100 * (mean_ratio(samples, TENANT, name, f"{name}, catalogue only") - 1)
                for name in (REPLACING, OURS)
            },
        ),
    ]


CHANGING_EXPERIMENT = Experiment(
    number=7,
    title="catalogue A, loads of 0.5 s, while what comes changes",
    where="section IV.C",
    panels=(
        Panel(key=MIX, title="the mix changes", x_label="alpha", y_label="benefit, vCPUs"),
        Panel(key=TENANT, title="a tenant has lost its benefit", x_label="alpha", y_label="benefit, vCPUs"),
    ),
    cases=changing_cases,
    measure=changing_measure,
    claims=changing_claims,
)
