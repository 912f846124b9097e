"""A picture of the slots that is kept up to date equals a rebuilt one, whatever a policy did in it in between."""

import numpy as np
import pytest

from fpga_pool.core.benefit.cycle import UNUSED, Picture, SlotNow, take
from fpga_pool.core.benefit.occupancy import Demand
from fpga_pool.core.benefit.paper import BenefitReplace
from fpga_pool.core.benefit.plus import BenefitPlus
from fpga_pool.core.benefit.pool import OnlinePool

FUNCTIONS, CARDS, SLOTS_EACH = 3, 4, 3
SLOTS = CARDS * SLOTS_EACH


def random_pool(rng):
    return OnlinePool(
        functions=tuple("abc"), speedup=rng.uniform(2, 20, FUNCTIONS), preemptible=rng.random(FUNCTIONS) < 0.7,
        progress_kept=np.ones(FUNCTIONS, bool), fits=np.ones((2, FUNCTIONS), bool),
        io_bps=rng.uniform(1e8, 9e8, (2, FUNCTIONS)), load_s=np.array([0.1, 0.5]), dma_bps=np.full(CARDS, 1e9),
        slot_card=np.repeat(np.arange(CARDS), SLOTS_EACH), slot_kind=rng.integers(0, 2, SLOTS),
    )  # fmt: skip


def random_slot(rng):
    function = int(rng.integers(0, FUNCTIONS))
    return [
        None,
        UNUSED,
        SlotNow(-1, put_off=True),
        SlotNow(function, loaded_s=float(rng.uniform(0, 9))),
        SlotNow(function, loading=True, needs_port=True),
        SlotNow(function, needs_port=True, end_s=float(rng.uniform(0, 9))),
        SlotNow(function, end_s=float(rng.uniform(0, 9)), movable=bool(rng.random() < 0.7)),
    ][rng.integers(0, 7)]


def said(picture):
    """Return everything that a policy can read, in its order."""
    groups = [[[list(slots) for slots in kind] for kind in groups] for groups in (picture.idle, picture.evictable)]
    by_slot = [
        (picture.holds[slot], picture.job[slot], picture.end_s[slot] if picture.job[slot] >= 0 else None)
        for slots in picture._slots_of
        for slot in slots
    ]
    loaded_s = [picture.loaded_s[slot] for kind in picture.idle for slots in kind for slot in slots]
    return groups, by_slot, loaded_s, {
        name: getattr(picture, name)
        for name in (
            "slots", "put_off", "idle_slots", "idle_holding", "held", "loading", "ends_s", "port_busy", "asked_bps",
            "_slots_of",
        )
    }  # fmt: skip


def look(picture, policy):
    def decide(view):
        return policy.decide(view, None, 10.0, None)

    return take(picture, decide, now_s=10.0, work_s=lambda _: 1.0, on_cpu=lambda _: False, loading={})


@pytest.mark.parametrize("policy", [BenefitReplace(), BenefitPlus()])
def test_a_picture_kept_up_to_date_is_the_one_made_again(policy):
    touched = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        pool, demand = random_pool(rng), Demand([5.0] * FUNCTIONS)
        demand.work_s, known = [2.0] * FUNCTIONS, [UNUSED] * SLOTS
        kept = Picture(pool, demand, known)
        for _ in range(40):
            changed = rng.choice(SLOTS, rng.integers(1, 4), replace=False).tolist()
            for slot in changed:
                known[slot] = random_slot(rng)
                kept.note(slot, known[slot])
            assert said(kept) == said(Picture(pool, demand, known))
            for job in range(int(rng.integers(0, 5))):
                kept.waits(job, int(rng.integers(0, FUNCTIONS)), 20.0)
            taken = look(kept, policy)
            touched += len(taken.touched)
            for slot in taken.touched:
                kept.note(slot, known[slot])
            for function, queue in enumerate(kept.waiting):
                for job in list(queue):
                    kept.left(job, function)
            kept.preloads = True
            assert said(kept) == said(Picture(pool, demand, known))
    assert touched > 100
