import pytest

from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.lifecycle.slot import (
    LEASE,
    SLOT,
    DrainCompleted,
    DrainRequested,
    HostLost,
    LeaseReleased,
    ResumeRequested,
)
from fpga_pool.model.messages.agents import SlotChanged
from fpga_pool.model.objects.pool import LeaseState, SlotState

EMPTY, LOADING, READY, BUSY, FAULTED, DRAINED = SlotState
OBSERVABLE = [EMPTY, LOADING, READY, BUSY, FAULTED]


def changed(state, function="", job="", reason=""):
    return SlotChanged(slot="h0/c/0", at=1.0, state=state, function=function, job=job, reason=reason)


@pytest.mark.parametrize("before", OBSERVABLE)
@pytest.mark.parametrize("after", OBSERVABLE)
def test_an_agent_may_observe_any_state_after_any_other(new_slot, before, after):
    slot, _ = SLOT.transition(new_slot(state=before, function="old", job="old"), changed(after, "aes", "j", "r"), 2.0)
    assert (slot.state, slot.function, slot.job, slot.reason) == (after, "aes", "j", "r")


def test_each_beginning_of_a_load_is_a_reconfiguration(new_slot):
    slot = new_slot()
    for state in (LOADING, LOADING, READY, BUSY, READY, LOADING, FAULTED):
        slot, _ = SLOT.transition(slot, changed(state, "aes"), 2.0)
    assert slot.reconfigurations == 2


def test_a_slot_knows_since_when_it_holds_its_function_whatever_it_computes_meanwhile(new_slot):
    slot, known = new_slot(), []
    steps = [(LOADING, "aes"), (READY, "aes"), (BUSY, "aes"), (READY, "aes"), (BUSY, "sha256"), (LOADING, "sha256")]
    for at, (state, function) in enumerate([*steps, (READY, "sha256"), (EMPTY, "")], start=1):
        report = SlotChanged(slot=slot.name, at=float(at), state=state, function=function)
        slot, _ = SLOT.transition(slot, report, 100.0)
        known.append(slot.loaded_at)
    # aes is loaded at 2 s.  sha256 is first observed at 5 s, and loaded again from 6 to 7 s.
    assert known == [None, 2.0, 2.0, 2.0, 5.0, None, 7.0, None]


def test_a_slot_of_a_lost_host_holds_nothing_since_any_time(new_slot):
    slot, _ = SLOT.transition(new_slot(state=READY, function="aes", loaded_at=3.0), HostLost(), 9.0)
    assert (slot.function, slot.loaded_at) == ("", None)


@pytest.mark.parametrize(("idle", "function"), [(EMPTY, ""), (READY, "aes")])
def test_a_drained_slot_stays_drained_while_idle_and_is_resumed_to_what_it_was(new_slot, idle, function):
    slot, _ = SLOT.transition(new_slot(state=idle, function=function), DrainRequested(reason="repair"), 1.0)
    slot, _ = SLOT.transition(slot, DrainCompleted(), 1.0)
    slot, _ = SLOT.transition(slot, changed(idle, function), 2.0)
    assert (slot.state, slot.reason, slot.drain_requested) == (DRAINED, "repair", True)
    slot, _ = SLOT.transition(slot, ResumeRequested(), 3.0)
    assert (slot.state, slot.reason, slot.drain_requested) == (idle, "", False)


def test_a_drained_slot_that_faults_is_faulted(new_slot):
    slot, _ = SLOT.transition(new_slot(state=DRAINED, drain_requested=True), changed(FAULTED, reason="gone"), 2.0)
    assert (slot.state, slot.reason, slot.drain_requested) == (FAULTED, "gone", True)


def test_the_operators_reason_outlives_the_running_job_and_a_faults_reason_ends_with_it(new_slot):
    slot, _ = SLOT.transition(new_slot(state=BUSY), DrainRequested(reason="repair"), 1.0)
    slot, _ = SLOT.transition(slot, changed(READY, "aes"), 2.0)
    assert slot.reason == "repair"
    slot, _ = SLOT.transition(slot, changed(FAULTED, reason="smoke"), 3.0)
    slot, _ = SLOT.transition(slot, changed(EMPTY), 4.0)
    assert slot.reason == ""


@pytest.mark.parametrize("state", [LOADING, BUSY, FAULTED, DRAINED])
def test_a_drain_is_complete_only_in_an_idle_slot(new_slot, state):
    assert not SLOT.allows(state, DrainCompleted)
    with pytest.raises(InvalidTransition, match=f"slot h0/c/0: DrainCompleted is not possible in state {state}"):
        SLOT.transition(new_slot(state=state), DrainCompleted(), 1.0)


@pytest.mark.parametrize("state", SlotState)
def test_drain_resume_and_loss_of_the_host_are_possible_in_every_state(new_slot, state):
    slot = new_slot(state=state, function="aes", job="j")
    assert SLOT.transition(slot, DrainRequested(reason="r"), 1.0)[0].drain_requested
    assert not SLOT.transition(slot, ResumeRequested(), 1.0)[0].drain_requested
    lost, _ = SLOT.transition(slot, HostLost(), 1.0)
    assert (lost.state, lost.function, lost.job, lost.reason) == (FAULTED, "", "", "its host is lost")


def test_a_lease_is_released_once(lease):
    released, actions = LEASE.transition(lease, LeaseReleased(), 9.0)
    assert (released.state, released.released_at, actions) == (LeaseState.RELEASED, 9.0, [])
    with pytest.raises(InvalidTransition, match="lease l: LeaseReleased is not possible in state RELEASED"):
        LEASE.transition(released, LeaseReleased(), 9.0)
