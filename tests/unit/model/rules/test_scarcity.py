"""Slots that other functions need are used last, by all kinds of work.  Here the large slot is the first by name."""

import pytest

from fpga_pool.core.benefit.plus import BenefitPlus
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.objects.pool import SlotState

from .conftest import Pool
from .online_bench import Online
from .task_bench import Tasks

KINDS = {"a": "large", "b": "small", "c": "small"}


@pytest.fixture
def pool(make_catalogue):
    functions = {"aes": (1.0, "small", "large"), "flow": (4.0, "large")}
    pool = Pool(make_catalogue(functions, slots=KINDS.values(), load_s=0.5, b_s_per_byte=1e-6))
    slots = tuple(
        ObservedSlot(slot=f"h0/c/{region}", card="c", region=region, board="fast", kind=kind, state=SlotState.EMPTY)
        for region, kind in KINDS.items()
    )
    pool.heard(pool.heartbeat(slots=slots))
    return pool


def test_a_planned_job_leaves_the_large_slot(pool):
    batch = pool.create("aes")
    pool.plan()
    assert pool.job(f"{batch}.0").slot == "h0/c/b"


@pytest.mark.parametrize("policy", [None, BenefitPlus()])
def test_an_online_job_leaves_the_large_slot(pool, policy):
    online = Online(pool, policy)
    online.create("aes")
    placed, _ = online.step()
    assert list(placed.values()) == ["h0/c/b"]


def test_a_task_leaves_the_large_slot(pool):
    tasks = Tasks(pool)
    task = tasks.create(1, requester="h0")
    tasks.place()
    assert tasks.slots(task) == ["h0/c/b"]


def test_a_function_that_needs_the_large_slot_gets_it(pool):
    batch = pool.create("aes", "aes", "flow")
    pool.plan()
    assert [pool.job(f"{batch}.{number}").slot for number in range(3)] == ["h0/c/b", "h0/c/c", "h0/c/a"]
