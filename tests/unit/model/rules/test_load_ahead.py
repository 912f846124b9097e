"""Loads ahead of jobs: which slots load what and when, and who may take them (`model.rules.online.family`)."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.benefit.cycle import MOST_LOADS
from fpga_pool.core.benefit.occupancy import EMPTY
from fpga_pool.core.benefit.plus import BenefitPlus
from fpga_pool.core.benefit.pool import Load
from fpga_pool.core.makespan import Ect
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.messages.agents import HoldSlot, LoadFunction, ObservedSlot, SlotChanged
from fpga_pool.model.objects.pool import JobState, LeaseKind, SlotState
from fpga_pool.model.rules.batch.planning import batch_problem
from fpga_pool.model.rules.instance.instances import Claim, claim_slots
from fpga_pool.model.rules.online.view import ANSWER_S, PAUSE_S
from fpga_pool.model.rules.shared.changes import end_lease, new_lease

from .online_bench import Online, entry

KINDS = {"r0": "small", "r1": "small", "r2": "large"}
R0, R1, R2 = (f"h0/c/r{number}" for number in range(3))
LOAD_S = 0.5


@pytest.fixture(scope="session")
def catalogue(make_catalogue):
    """Return a catalogue: three slots that load in 0.5 s, functions with speedups 2 and 30 (large slot only)."""
    functions = {"aes": entry(10.0, 20.0, "small", "large"), "flow": entry(10.0, 300.0, "large")}
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=LOAD_S)


class OneLoad:
    """A policy that loads one function into the first empty slot that can load, whether or not jobs wait."""

    def __init__(self, function):
        self._function = function

    def decide(self, view, state, now_s, rng):
        for kind in view.kinds:
            slot = view.roomiest(view.idle[kind][EMPTY], port=True) if view.fits[kind][self._function] else None
            if slot is not None and slot not in view.put_off:
                return Load(slot, self._function)
        return None


@pytest.fixture
def online(pool):
    pool.settings = replace(pool.settings, max_attempts=10)
    return Online(pool, OneLoad(0))


def ahead(pool):
    """Return the loads ahead sent since the last call: slot, function and replaced function."""
    return [(c.slot, c.action.function, c.action.replaces) for c in pool.sent() if isinstance(c.action, LoadFunction)]


def becomes(pool, slot, state, function=""):
    return pool.report(SlotChanged(slot=slot, at=pool.now_s, state=state, function=function), host="h0")


def test_an_empty_slot_is_told_to_load_before_any_job_asks_and_nobody_holds_it(pool, online):
    online.step()
    assert ahead(pool) == [(R0, "aes", "")]
    assert pool.lease(R0) is None
    # The card's port is busy until the slot is loaded or its time is over: no other slot of the card gets a load.
    online.step()
    becomes(pool, R0, SlotState.LOADING, "aes")
    online.step()
    assert ahead(pool) == []
    becomes(pool, R0, SlotState.READY, "aes")
    online.step()
    assert ahead(pool) == [(R1, "aes", "")]


def test_a_pool_without_empty_slots_is_not_looked_at_while_nobody_waits(pool, online):
    for slot in (R0, R1, R2):
        becomes(pool, slot, SlotState.READY, "aes")
    assert online.view() is None


def test_what_is_switched_off_is_not_done(pool, online):
    pool.settings = replace(pool.settings, load_ahead=False)
    online.create("flow")
    online.step()
    assert ahead(pool) == []


def test_a_job_that_comes_while_its_function_loads_goes_to_that_slot_and_its_input_moves_meanwhile(pool, online):
    online.step()
    becomes(pool, R0, SlotState.LOADING, "aes")
    pool.now_s += 0.2
    online.create("aes")
    assert online.step() == ({"b1.0": R0}, [])
    # 0.3 s of the load remain.
    assert pool.job("b1.0").start_s == pytest.approx(LOAD_S - 0.2)


def test_a_job_that_waits_takes_the_load_that_was_decided_first(pool, online):
    online.create("aes")
    assert online.step() == ({"b1.0": R0}, [])
    assert [type(command.action).__name__ for command in pool.sent()] == ["AssignJob"]


def fails(pool, slot, function):
    """Report a failed load, as agents do."""
    becomes(pool, slot, SlotState.LOADING, function)
    becomes(pool, slot, SlotState.EMPTY)


def test_a_load_that_failed_is_over_at_once_and_told_again_less_and_less_often(pool, online):
    for slot in (R1, R2):
        pool.drain(slot)
    told_at = []
    while len(told_at) < 4:
        online.step()
        for slot, function, _ in ahead(pool):
            told_at.append(pool.now_s)
            assert list(online.view().loading) == [0]
            fails(pool, slot, function)
            assert list(online.view().loading) == []
        pool.now_s += 1.0
    gaps = np.diff(told_at).tolist()
    assert gaps == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]


def test_a_job_gets_the_slot_of_a_load_that_failed_as_any_empty_one(pool, online):
    for slot in (R1, R2):
        pool.drain(slot)
    online.step()
    fails(pool, R0, "aes")
    online.policy = BenefitPlus()
    online.create("aes")
    assert online.step()[0] == {"b1.0": R0}
    # It is loaded for the job, from the start.
    assert pool.job("b1.0").start_s == pytest.approx(LOAD_S)


def test_a_load_that_no_agent_begins_is_given_up(pool, online):
    online.step()
    assert list(online.view().loading) == [0]
    pool.now_s += LOAD_S + ANSWER_S
    assert list(online.view().loading) == []


@pytest.mark.parametrize("full", [R1, R2])
def test_a_port_that_loads_is_busy_whatever_other_slots_of_the_card_hold(pool, online, full):
    becomes(pool, full, SlotState.READY, "aes")
    becomes(pool, R0, SlotState.LOADING, "aes")
    assert online.view().occupancy.port_busy == [True]
    online.step()
    assert ahead(pool) == []


def test_a_card_whose_port_is_free_is_found_behind_many_that_load(pool, online):
    cards = [f"n{number:02d}" for number in range(100)]
    for host in cards:
        # On each card the first slot is loaded, the second is loading (except on the last host), the third is empty.
        second = (SlotState.LOADING, "aes") if host != cards[-1] else (SlotState.EMPTY, "")
        states = {"r0": (SlotState.READY, "aes"), "r1": second, "r2": (SlotState.EMPTY, "")}
        slots = [
            ObservedSlot(
                slot=f"{host}/c/{region}", card="c", region=region, board="fast", kind=KINDS[region],
                state=state, function=function,
            )
            for region, (state, function) in states.items()
        ]  # fmt: skip
        pool.heard(pool.heartbeat(host, slots=tuple(slots)))
    becomes(pool, R0, SlotState.LOADING, "aes")
    assert online.view().occupancy.port_busy.count(False) == 1
    online.policy = OneLoad(1)
    online.step()
    assert [slot for slot, _, _ in ahead(pool)] == [f"{cards[-1]}/c/r2"]


def test_a_scheduler_that_took_over_sees_from_the_slot_that_it_loads(pool, online):
    online.step()
    becomes(pool, R0, SlotState.LOADING, "aes")
    online.told = {}
    assert list(online.view().loading) == [0]


def test_a_large_pool_is_filled_in_several_looks_and_its_jobs_do_not_wait_for_that(pool, online):
    def observed(host):
        slot = ObservedSlot(
            slot=f"{host}/c/r0", card="c", region="r0", board="fast", kind="small", state=SlotState.EMPTY
        )
        return pool.heard(pool.heartbeat(host, slots=(slot,)))

    for number in range(3 * MOST_LOADS):
        observed(f"n{number}")
    # There was no demand before, so both functions are assumed to fill the pool: half of it is for aes.
    becomes(pool, R2, SlotState.READY, "flow")
    online.policy = BenefitPlus()
    online.create("flow")
    assert online.step()[0] == {"b1.0": R2}
    first = {slot for slot, _, _ in ahead(pool)}
    assert len(first) == MOST_LOADS
    online.step()
    second = {slot for slot, _, _ in ahead(pool)}
    assert 0 < len(second) <= MOST_LOADS
    assert first.isdisjoint(second)


def claimed(pool):
    with pool.tx() as tx:
        tx.add(new_lease(tx, R0, LeaseKind.INSTANCE, "vm", pool.now_s, project_id="p", function="flow"))


def taken_by_a_task(pool):
    with pool.tx() as tx:
        tx.add(new_lease(tx, R0, LeaseKind.TASK, "task", pool.now_s, project_id="p"))


def taken_by_a_gang(pool):
    with pool.tx() as tx:
        tx.add(new_lease(tx, R0, LeaseKind.GANG, "gang", pool.now_s, project_id="p"))


def planned(pool):
    for slot in (R1, R2):
        pool.drain(slot)
    pool.create("aes")
    request = batch_problem(pool.snapshot(is_planned="benefit_replace".__ne__))
    assert pool.commit(request, Ect().decide(request.problem, None, 0.0, np.random.default_rng(0)))


def drained(pool):
    pool.drain(R0)


def loaded(pool):
    becomes(pool, R0, SlotState.READY, "flow")


TAKEN = [claimed, taken_by_a_task, taken_by_a_gang, planned, drained, loaded]


@pytest.fixture
def gives_back(pool):
    """End the lease of a task on R0 after the test, since the task does not exist."""
    yield
    if (lease := pool.lease(R0)) is not None and lease.kind is LeaseKind.TASK:
        with pool.tx() as tx:
            end_lease(tx, lease, pool.now_s)


@pytest.mark.usefixtures("gives_back")
@pytest.mark.parametrize("taken", TAKEN)
def test_a_slot_that_somebody_else_got_after_the_decision_is_left_to_them(pool, online, taken):
    moves = online.decide(online.view())
    assert [(slot.name, function) for slot, function in moves.loads] == [(R0, "aes")]
    taken(pool)
    online.commit(moves)
    assert ahead(pool) == []


@pytest.mark.usefixtures("gives_back")
@pytest.mark.parametrize("taken", TAKEN)
def test_a_slot_that_somebody_else_has_is_not_told_to_load(pool, online, taken):
    taken(pool)
    online.step()
    assert R0 not in [slot for slot, _, _ in ahead(pool)]


def test_an_instance_claims_a_slot_that_loads_ahead(pool, online):
    for slot in (R0, R1):
        pool.drain(slot)
    online.step()
    becomes(pool, R2, SlotState.LOADING, "aes")
    wanted = AcceleratorRequest(function="flow", count=1)
    claim = Claim(host="h0", instance="vm", project_id="p", wanted=wanted)
    with pool.tx() as tx:
        assert [slot.name for slot in claim_slots(tx, claim, pool.catalogue, pool.settings, pool.now_s)] == [R2]
    assert [(command.slot, type(command.action)) for command in pool.sent()] == [(R2, LoadFunction), (R2, HoldSlot)]
    online.create("flow")
    online.step()
    assert ahead(pool) == []


def test_a_batch_is_planned_on_slots_that_load_ahead(pool, online):
    online.step()
    becomes(pool, R0, SlotState.LOADING, "aes")
    pool.create("aes", "aes", "aes")
    request = batch_problem(pool.snapshot(is_planned="benefit_replace".__ne__))
    pool.commit(request, Ect().decide(request.problem, None, 0.0, np.random.default_rng(0)))
    assert R0 in {pool.job(f"b1.{number}").slot for number in range(3)}


def test_a_running_job_is_not_disturbed(pool, online):
    (job,) = online.run("aes")
    assert pool.job(job).slot == R0
    for _ in range(3):
        online.step()
        for slot, function, _ in ahead(pool):
            assert slot != R0
            becomes(pool, slot, SlotState.READY, function)
    assert pool.job(job).state is JobState.RUNNING


def test_benefit_plus_fills_a_pool_with_what_is_asked_for_one_slot_after_the_other(pool, online):
    online.policy = BenefitPlus()
    filled = {}
    online.create("flow")
    # `flow` fits only the large slot; the others are for `aes`, which no job has requested yet.
    assert online.step()[0] == {"b1.0": R2}
    online.demand.arrived(1, 10.0, 10.0, pool.now_s)
    becomes(pool, R2, SlotState.READY, "flow")
    pool.bring("b1.0", JobState.RUNNING)
    for _ in range(4):
        online.step()
        for slot, function, replaces in ahead(pool):
            assert (replaces, slot in filled) == ("", False)
            filled[slot] = function
            becomes(pool, slot, SlotState.READY, function)
    assert filled == {R0: "aes", R1: "aes"}
    assert online.view() is None
