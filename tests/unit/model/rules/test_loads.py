"""The projects to which loads of functions are charged."""

from dataclasses import replace

import pytest

from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import JobState, SlotState

R0 = "h0/c/r0"


@pytest.fixture
def loads(pool):
    """Return a function that reports a load of a slot; it returns project, function and begin of all charged loads."""

    def loads(function, slot=R0):
        assert pool.report(pool.slot_report(slot, SlotState.LOADING, function)) == []
        assert pool.report(pool.slot_report(slot, SlotState.READY, function)) == []
        return [(one.project_id, one.function, one.began_at) for one in pool.store.all(ChargedLoad)]

    return loads


@pytest.fixture
def queued(pool):
    """Return a function that puts jobs of projects into the queue of a slot."""

    def queue(*wanted):
        batch = pool.create(*(function for _, function, _ in wanted))
        with pool.tx() as tx:
            for order, (project, _, state) in enumerate(wanted):
                place = {"state": state, "host": "h0", "slot": R0, "order": order, "attempt": 1}
                tx.save(replace(tx.job(f"{batch}.{order}"), project_id=project, **place))
        return batch

    yield queue
    # The queue does not follow from a plan.
    pool.check_invariants = lambda: None


WAITING, STAGED = JobState.WAITING_INPUT, JobState.STAGED


def test_a_load_is_charged_to_the_job_that_it_is_for(pool, loads, queued):
    queued(("a", "sha256", WAITING), ("b", "aes", WAITING), ("c", "aes", STAGED), ("d", "aes", STAGED))
    # The first staged job that needs the function, which is the agent's choice as well.
    assert loads("aes") == [("c", "aes", pool.now_s)]


def test_a_load_before_any_input_has_arrived_is_charged_to_the_head_of_the_queue(pool, loads, queued):
    queued(("a", "aes", WAITING), ("b", "aes", WAITING))
    assert loads("aes") == [("a", "aes", pool.now_s)]


def test_who_finds_the_function_loaded_is_charged_nothing(pool, loads, queued):
    queued(("a", "aes", STAGED), ("b", "aes", STAGED))
    loads("aes")
    pool.report(pool.slot_report(R0, SlotState.READY, "aes"))
    assert [one.project_id for one in pool.store.all(ChargedLoad)] == ["a"]


def test_a_load_that_fails_is_charged_once_and_the_next_one_anew(pool, loads, queued):
    queued(("a", "aes", STAGED))
    pool.report(pool.slot_report(R0, SlotState.LOADING, "aes"))
    pool.report(pool.slot_report(R0, SlotState.FAULTED, reason="smoke"))
    assert len(pool.store.all(ChargedLoad)) == 1
    pool.now_s += 1.0
    queued(("b", "aes", STAGED))
    assert [project for project, *_ in loads("aes")] == ["a", "b"]


def test_a_load_ahead_of_demand_is_charged_to_nobody(loads):
    assert loads("aes") == []


def test_loads_of_the_slot_of_an_instance_are_charged_to_its_project(pool, loads, foreign_lease):
    foreign_lease(R0)
    assert loads("aes") == [("p", "aes", pool.now_s)]
