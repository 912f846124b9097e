"""Online policies decide the same on a view that is updated, as in the paper's model, and on one that is rebuilt.

The live pool builds its view from the store for each decision.  Facts that the store does not keep, such as the order
in which slots became idle, may only decide between equivalent slots.

    pytest --traces 200 tests/unit/parity/test_online_views.py

Known difference: if jobs of one function could be evicted from several slots, on cards with the same DMA left, a policy
examines the first slot: the one whose job began first, or the one with the lowest number.  `benefit_plus` weighs how
long that job still runs.  Decisions with several such slots are not compared.

In the paper's model an evicted job waits behind the other jobs of its function, here in both views.  In a live pool it
keeps its place, as `test_online` compares.

`test_online` compares the behaviour of a live pool, faults included.
"""

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.sim.benefit.live import simulate
from fpga_pool.sim.benefit.trace import Trace

#: Hundreds of traces take minutes.
pytestmark = pytest.mark.timeout(1800)

JOBS, FUNCTIONS = 120, 4


def random_case(seed):
    """Return a pool of a few cards with little DMA, and jobs of two projects that arrive slightly too fast."""
    rng = np.random.default_rng(seed)
    cards, slots = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    kind = rng.integers(0, 2, cards * slots)
    fits = rng.random((2, FUNCTIONS)) < 0.8
    fits[0] |= ~fits.any(axis=0)
    pool = OnlinePool(
        functions=tuple("abcd"), speedup=rng.uniform(2, 20, FUNCTIONS), preemptible=rng.random(FUNCTIONS) < 0.5,
        progress_kept=rng.random(FUNCTIONS) < 0.5, fits=fits,
        io_bps=np.tile(rng.uniform(1e8, 9e8, FUNCTIONS), (2, 1)), load_s=rng.choice([0.05, 0.5], 2),
        dma_bps=np.full(cards, 1e9), slot_card=np.repeat(np.arange(cards), slots), slot_kind=kind,
    )  # fmt: skip
    function = rng.integers(0, FUNCTIONS, JOBS)
    trace = Trace(
        jobs=tuple(f"j{i}" for i in range(JOBS)),
        function=np.where(fits[np.unique(kind)].any(axis=0)[function], function, -1),
        arrival_s=np.cumsum(rng.exponential(0.6 / pool.slots, JOBS)), work_s=rng.choice([0.5, 1.0, 1.3], JOBS),
        patience_s=rng.choice([0.5, 1.0, 20.0], JOBS), project=tuple(rng.choice(["p", "q"], JOBS).tolist()),
    )  # fmt: skip
    return pool, trace


def made_again(view):
    """Return the same occupancy, rebuilt by slot and by job as in the live pool."""
    slots = range(view.pool.slots)
    loads = [view.job[slot] < 0 and slot not in view.idle[view.kind[slot]][view.holds[slot]] for slot in slots]
    fresh = Occupancy(view.pool, view.demand)
    fresh.preloads = view.preloads
    for slot in sorted(slots, key=loads.__getitem__):
        if view.holds[slot] == EMPTY:
            continue
        fresh.loads(slot, view.holds[slot])
        if loads[slot]:
            continue
        fresh.loaded(slot, view.loaded_s[slot])
        if view.job[slot] >= 0:
            fresh.started(slot, view.job[slot], view.end_s[slot])
    for function in view.functions:
        for job, give_up_s in view.waiting[function].items():
            fresh.waits(job, function, give_up_s)
    fresh.news = None, None
    return fresh


def meaning(view, move):
    """Return the kind of a move and of its slot: everything that distinguishes slots except their numbers."""
    if move is None:
        return None
    slot, card = move.slot, view.card[move.slot]
    left_bps = round(view.dma_bps[card] - view.asked_bps[card])
    return type(move), move.function, view.kind[slot], view.holds[slot], view.job[slot] >= 0, left_bps


def is_ambiguous(view):
    """Return whether jobs of one function could be evicted from several slots that only their order distinguishes."""
    for groups in view.evictable:
        for slots in groups:
            left_bps = [round(view.dma_bps[view.card[slot]] - view.asked_bps[view.card[slot]]) for slot in slots]
            if len(set(left_bps)) < len(left_bps):
                return True
    return False


class Compared:
    """A policy that decides on both views, and continues with its decision on the updated one."""

    def __init__(self, policy):
        self._policy, self.name = policy, policy.name
        self.decisions, self.differences = 0, []

    def decide(self, view, state, now_s, rng):
        # The live pool examines everything in each cycle, not only news.
        view.news = None, None
        move = self._policy.decide(view, state, now_s, rng)
        other = self._policy.decide(made_again(view), state, now_s, rng)
        if is_ambiguous(view):
            return move
        self.decisions += 1
        if meaning(view, move) != meaning(view, other):
            self.differences.append((now_s, move, other))
        return move


@pytest.mark.parametrize("name", policy_names("online"))
def test_no_decision_differs(name, traces):
    decisions, differences = 0, []
    for seed in range(traces):
        pool, trace = random_case(seed)
        compared = Compared(load_policy("online", name))
        simulate(pool, trace, compared, tenant_share=(1.0, 0.5)[seed % 2])
        decisions += compared.decisions
        differences += [(seed, *difference) for difference in compared.differences]
    assert differences == []
    assert decisions > traces * JOBS / 2
