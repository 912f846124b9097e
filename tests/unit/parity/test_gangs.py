"""The fast simulator of gangs decides as the live pool does: every move of every gang, its place and its time."""

import numpy as np
import pytest

from fpga_pool.conf.policies import policy_as, policy_names
from fpga_pool.core.gangs.gangs import Gangs
from fpga_pool.core.gangs.progress import draw_shares
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.sim.gangs.simulator import simulate
from fpga_pool.sim.gangs.trace import Cancellation, Failure, Outage, Trace

from .gang_pool import LivePool

#: Hundreds of traces take minutes.
pytestmark = pytest.mark.timeout(1800)

MIGRATION_S = 20.0
#: Policies with parameters that differ from their defaults.
OPTIONS = [
    "easy:extra_ends=all",
    "keasy:extra_ends=all",
    "reasy:usage_threshold=0.7",
    "measy_plus:patience=0",
    "measy_plus:last_runs=2,least_rate_from_s=0",
    "measy_plus:trial_s=30,trial_share=0.5",
    "measy_plus:trial_s=60,trial_share=1,last_runs=1,extra_ends=all",
]


class Watched:
    """A policy whose decisions are recorded."""

    def __init__(self, policy):
        self._policy, self.moves = policy, []

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def decide(self, view, state, now_s, rng):
        for move in self._policy.decide(view, state, now_s, rng):
            self.moves.append((move.gang, move.how.value, tuple(move.processors.tolist()), now_s))
            yield move


def random_trace(seed):
    """Return gangs that mostly wait on a few hosts, many submitted together, with times that often coincide."""
    rng = np.random.default_rng(seed)
    hosts, per_host, count = int(rng.integers(2, 5)), int(rng.integers(1, 5)), int(rng.integers(10, 25))
    processors, unit_s = hosts * per_host, rng.choice([0.1, 1.0, 10.0])
    width = np.minimum(rng.geometric(0.4, count), processors)
    run_s = np.ceil(rng.lognormal(4.5, 1.2, count) / unit_s) * unit_s
    estimate_s = np.ceil(run_s * rng.choice([1.0, 1.0, 1.5, 4.0, 20.0], count) / unit_s) * unit_s
    pace_s = float((width * run_s).sum()) / processors / count
    gaps_s = rng.exponential(rng.uniform(0.5, 1.5) * pace_s, count) * (rng.random(count) < 0.7)
    submit_s = np.round(np.cumsum(gaps_s) / unit_s) * unit_s
    usage = np.where(width == 1, 1.0, np.round(rng.uniform(0.2, 1.0, count), 1))
    user = rng.integers(-1, 3, count)
    gangs = Gangs(width=width, estimate_s=estimate_s, usage=usage, user=user)
    trace = Trace(job=np.arange(count), submit_s=submit_s, run_s=run_s, estimate_s=estimate_s, width=width, user=user)
    shares = draw_shares(width, ProgressParams(), rng)
    return hosts, per_host, gangs, trace, shares, random_faults(rng, hosts, per_host, trace)


def random_faults(rng, hosts, per_host, trace):
    end_s, count = float(trace.submit_s[-1]) * 1.2, len(trace.run_s)
    faults = [Failure(at_s=rng.uniform(0, end_s), gang=int(rng.integers(count))) for _ in range(rng.integers(0, 6))]
    faults += [
        Cancellation(at_s=rng.uniform(0, end_s), gang=int(rng.integers(count))) for _ in range(rng.integers(0, 3))
    ]
    for host in rng.permutation(hosts)[: rng.integers(0, hosts)].tolist():
        begin_s = rng.uniform(0, end_s)
        processors = range(host * per_host, (host + 1) * per_host)
        faults.append(Outage(begin_s=begin_s, end_s=begin_s + rng.exponential(end_s / 5), processors=processors))
    return faults


@pytest.mark.parametrize("name", [*policy_names("gang"), *OPTIONS])
def test_the_fast_simulator_decides_as_the_live_rules_do(name, traces):
    kinds = set()
    for seed in range(traces):
        hosts, per_host, gangs, trace, shares, faults = random_trace(seed)
        fast = Watched(policy_as("gang", name))
        simulate(hosts * per_host, trace, gangs, shares, fast, migration_s=MIGRATION_S, faults=faults)
        live = LivePool(policy_as("gang", name), hosts, per_host, gangs, trace, shares, faults, MIGRATION_S)
        moves = live.run()
        for number, (said, done) in enumerate(zip(fast.moves, moves, strict=False)):
            assert done[:3] == said[:3], f"seed {seed}, decision {number}: {said} in the simulator, {done} live"
            assert done[3] == pytest.approx(said[3], rel=1e-9), f"seed {seed}, decision {number}"
        assert len(moves) == len(fast.moves), f"seed {seed}"
        kinds |= {how for _, how, _, _ in moves}
    assert "start" in kinds
