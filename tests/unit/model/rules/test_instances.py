"""Slots for virtual machines.  The host has two small slots and a large one on one card; `soft` is preemptible."""

import re
from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict, InvalidCatalogue, NotFound, UnknownFunction
from fpga_pool.model.flavor import AcceleratorRequest, provider_uuid
from fpga_pool.model.messages.agents import EvictJob, FreeSlot, HoldSlot, JobEvicted, ReleaseJob
from fpga_pool.model.objects.pool import Host, JobState, LeaseKind, SlotState
from fpga_pool.model.rules.instance.instances import (
    Claim,
    check_functions_in_use,
    claim_slots,
    held_by,
    instance_leases,
    not_to_be_had,
    release_slots,
)
from fpga_pool.model.rules.shared.events import events_of
from fpga_pool.model.values import changed

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"
SMALL, LARGE = provider_uuid("h0", "c", "small"), provider_uuid("h0", "c", "large")


@pytest.fixture(scope="module")
def catalogue(make_catalogue, make_stoppable):
    soft = make_stoppable(20.0)
    functions = {
        "aes": (20.0, "small", "large"),
        "flow": (4.0, "large"),
        "soft": soft,
        "lossy": soft | {"progress_kept": False},
    }
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.5, b_s_per_byte=1e-6)


@pytest.fixture
def claim(pool):
    """Return a function that claims slots for an instance, and returns their names."""

    def claim(function="aes", count=1, *, instance="vm", host="h0", allocated=None):
        wanted = Claim(
            host=host,
            instance=instance,
            project_id="p",
            wanted=AcceleratorRequest(function=function, count=count),
            allocated=allocated,
        )
        with pool.tx() as tx:
            return [slot.name for slot in claim_slots(tx, wanted, pool.catalogue, pool.settings, pool.now_s)]

    return claim


@pytest.fixture
def release(pool):
    def release(instance="vm"):
        with pool.tx() as tx:
            return [lease.slot for lease in release_slots(tx, held_by(tx, "h0", instance), pool.now_s)]

    return release


@pytest.fixture
def busy(pool):
    """Return a function that starts a job on a slot that fits it, and returns its uuid."""

    def busy(function, *others):
        batch = pool.create(function, *others)
        pool.plan()
        job = f"{batch}.0"
        pool.bring(job, JobState.RUNNING)
        pool.sent()
        return job

    return busy


def holders(pool):
    with pool.tx() as tx:
        return {lease.slot: lease.holder for lease in instance_leases(tx, "h0")}


def blocked(pool):
    with pool.tx() as tx:
        return not_to_be_had(tx, pool.catalogue, pool.settings, pool.now_s)


# Claims


def test_slots_that_another_function_needs_are_claimed_last(pool, claim):
    """Only the large slot, R2, holds `flow`; `aes` leaves it although it is loaded there."""
    pool.heard(pool.heartbeat(r2={"state": SlotState.READY, "function": "aes"}))
    assert claim(count=2) == [R0, R1]


def test_a_claim_holds_empty_slots_and_tells_the_agent(pool, claim):
    assert claim(count=2) == [R0, R1]
    lease = pool.lease(R0)
    assert (lease.kind, lease.holder, lease.project_id) == (LeaseKind.INSTANCE, "vm", "p")
    assert (lease.function, lease.epoch, lease.revocable) == ("aes", 1, False)
    hold = HoldSlot(instance="vm", project_id="p", function="aes", lease_epoch=1)
    assert [(command.slot, command.action) for command in pool.sent()] == [(R0, hold), (R1, hold)]


def test_a_claim_that_is_made_again_changes_nothing(pool, claim):
    claim(count=2)
    pool.sent()
    assert claim(count=2) == [R0, R1]
    assert pool.sent() == []


def test_a_claim_takes_what_is_missing_and_gives_back_what_is_not_wanted_any_more(pool, claim):
    claim(count=2)
    pool.sent()
    assert claim("flow") == [R2]
    assert holders(pool) == {R2: "vm"}
    free = FreeSlot(instance="vm", lease_epoch=1)
    assert [(command.slot, command.action) for command in pool.sent()][:2] == [(R0, free), (R1, free)]
    assert claim("flow", allocated={LARGE: 1}) == [R2]


@pytest.mark.parametrize(("other", "preferred"), [("soft", ""), ("", "aes"), ("soft", "aes")])
def test_a_slot_that_holds_the_function_is_preferred_then_an_empty_one_then_any_idle_one(pool, claim, other, preferred):
    def holds(function):
        return {"state": SlotState.READY if function else SlotState.EMPTY, "function": function}

    pool.heard(pool.heartbeat(r0=holds(other), r1=holds(preferred)))
    assert [claim(instance=f"vm{i}") for i in range(2)] == [[R1], [R0]]


def test_only_slots_that_placement_allocated_are_taken(pool, claim):
    assert claim(allocated={LARGE: 1}) == [R2]
    assert claim(instance="other", count=2, allocated={SMALL: 2, "elsewhere": 3}) == [R0, R1]


def test_slots_of_two_providers_are_taken_as_they_were_allocated(pool, claim):
    assert claim(count=2, allocated={SMALL: 1, LARGE: 1}) == [R0, R2]


def test_less_allocated_than_wanted_is_refused(pool, claim):
    with pytest.raises(Conflict, match=r"Placement has allocated 1 slots of host h0 to it, its flavor requests 2"):
        claim(count=2, allocated={SMALL: 1, "elsewhere": 1})
    assert pool.sent() == []


def test_slots_of_another_instance_are_never_taken(pool, claim):
    claim(count=2, instance="first")
    message = (
        "2 slots for aes are requested; of the 3 slots that fit 2 are held by virtual machines and 1 are available"
    )
    with pytest.raises(Conflict, match=re.escape(message)):
        claim(count=2)
    assert holders(pool) == {R0: "first", R1: "first"}


def test_nothing_is_given_of_a_host_that_is_silent(pool, claim):
    pool.now_s += 11
    pool.tick()
    with pytest.raises(Conflict, match="its agent is lost"):
        claim()


def test_an_unknown_function_is_refused_by_name(claim):
    with pytest.raises(UnknownFunction, match="'md5' is not in the catalogue; it has aes, flow"):
        claim("md5")


def test_a_slot_out_of_service_is_not_given(pool, claim):
    pool.drain(R2)
    with pytest.raises(Conflict, match="of the 1 slots that fit 0 are held"):
        claim("flow")


# Effects on jobs of the pool


def test_a_running_job_is_evicted_with_its_progress_and_its_slot_is_held_at_once(pool, claim, busy):
    # The evicted job is the one that loses least: soft keeps its progress.
    job = busy("soft", "soft", "soft")
    slot = pool.job(job).slot
    for other in ("b1.1", "b1.2"):
        pool.bring(other, JobState.RUNNING)
    pool.sent()
    provider = LARGE if slot == R2 else SMALL
    taken = claim(allocated={provider: 1})[0]
    evicted = next(job for job in ("b1.0", "b1.1", "b1.2") if pool.job(job).slot == taken)
    actions = [command.action for command in pool.sent()]
    assert actions[0] == EvictJob(job=evicted, attempt=1, keep_progress=True)
    assert isinstance(actions[1], HoldSlot)
    assert pool.lease(taken).holder == "vm"
    assert pool.report(JobEvicted(**pool.about(evicted), done=0.5)) == []
    assert (pool.job(evicted).state, pool.job(evicted).done) == (JobState.PENDING, 0.5)
    assert pool.lease(taken).holder == "vm"


def test_a_job_that_waits_is_planned_elsewhere_on_slots_that_no_instance_holds(pool, claim):
    pool.create("flow")
    pool.plan()
    pool.sent()
    pool.host_up("h1")
    assert claim("flow") == [R2]
    assert [type(command.action) for command in pool.sent()] == [ReleaseJob, HoldSlot]
    assert pool.job("b1.0").reason == f"slot {R2} was claimed for a virtual machine"
    assert [job.slot for job in pool.plan()] == ["h1/c/r2"]


def test_a_staged_job_keeps_its_input(pool, claim):
    pool.create("flow")
    pool.plan()
    pool.bring("b1.0", JobState.STAGED)
    pool.sent()
    claim("flow")
    assert pool.sent()[0].action == EvictJob(job="b1.0", attempt=1, keep_progress=False)


def test_the_least_work_is_lost(pool, claim, busy):
    # All three jobs lose their progress, so the youngest one is evicted.
    pool.create("lossy", "lossy", "lossy")
    pool.plan()
    for job in ("b1.0", "b1.2", "b1.1"):
        pool.bring(job, JobState.RUNNING)
        pool.now_s += 1
    assert claim() == [pool.job("b1.1").slot]


def test_a_job_that_cannot_be_stopped_keeps_its_slot(pool, claim, busy):
    busy("flow", "flow")
    # Both on R2, 4.5 s each.  The first one ends within the 5 s that a claim may wait, so only the other one leaves.
    assert claim("flow") == [R2]
    assert [type(command.action) for command in pool.sent()] == [ReleaseJob, HoldSlot]
    assert pool.job("b1.0").state is JobState.RUNNING
    pool.finish("b1.0")
    assert pool.job("b1.0").state is JobState.RESULT_HELD
    assert pool.lease(R2).holder == "vm"


def test_a_slot_whose_job_cannot_be_stopped_and_runs_for_long_is_not_to_be_had(pool, claim, busy):
    pool.create("aes", "aes", "aes")  # 20 s each, one on each slot
    pool.plan()
    for job in ("b1.0", "b1.1", "b1.2"):
        pool.bring(job, JobState.RUNNING)
    assert blocked(pool) == (set(), {R0, R1, R2})
    with pytest.raises(Conflict, match="of the 1 slots that fit 0 are held by virtual machines and 0 are available"):
        claim("flow")
    pool.now_s += 16  # 4.5 s before their end
    pool.heard(pool.heartbeat())
    assert blocked(pool) == (set(), set())
    assert claim("flow") == [R2]


def test_a_job_that_was_planned_as_often_as_it_may_is_not_taken_off(pool, claim):
    pool.settings = replace(pool.settings, max_attempts=1)
    pool.create("flow")
    pool.plan()
    assert blocked(pool) == (set(), set())  # it ends within 5 s
    claim("flow")
    assert pool.job("b1.0").state is JobState.WAITING_INPUT


def test_slots_out_of_service_are_not_to_be_had_unless_an_instance_holds_them(pool, claim):
    claim("flow")
    pool.drain(R0)
    pool.drain(R2)
    assert blocked(pool) == ({R0}, set())


# Release


def test_a_release_frees_everything_and_once(pool, claim, release):
    claim(count=2)
    claim("flow", instance="other")
    pool.sent()
    assert release() == [R0, R1]
    free = FreeSlot(instance="vm", lease_epoch=1)
    assert [(command.slot, command.action) for command in pool.sent()] == [(R0, free), (R1, free)]
    assert release() == []
    assert holders(pool) == {R2: "other"}


def test_a_freed_slot_is_the_pools_again(pool, claim, release):
    claim("flow")
    pool.create("flow")
    assert pool.plan() == []
    release()
    assert [job.slot for job in pool.plan()] == [R2]
    assert (pool.lease(R2).kind, pool.lease(R2).epoch) == (LeaseKind.POOL, 2)


def test_a_slot_is_drained_when_its_instance_has_left(pool, claim, release):
    claim("flow")
    pool.drain(R2)
    assert pool.slot(R2).state is SlotState.EMPTY
    release()
    assert pool.slot(R2).state is SlotState.DRAINED


def test_a_lease_that_was_claimed_again_since_is_not_released(pool, claim):
    claim("flow")
    lease = pool.lease(R2)
    claim("flow")
    with pool.tx() as tx:
        assert not release_slots(tx, [lease], pool.now_s)
        assert release_slots(tx, [pool.lease(R2)], pool.now_s)


def test_a_lease_that_is_over_is_not_released_again(pool, claim, release):
    claim("flow")
    lease = pool.lease(R2)
    with pool.tx() as tx:
        assert release_slots(tx, [lease], pool.now_s) == [lease]
    claim("flow", instance="next")
    with pool.tx() as tx:
        assert not release_slots(tx, [lease], pool.now_s)
    assert holders(pool) == {R2: "next"}


# Slots that agents hold for instances


def actions(pool):
    return [(command.slot, type(command.action)) for command in pool.sent()]


def test_an_agent_that_keeps_what_it_should_is_left_alone(pool, claim):
    claim()
    pool.sent()
    assert pool.heard(pool.heartbeat()) == []
    assert pool.sent() == []


def test_a_hold_is_said_again_once_the_agent_has_done_what_it_was_told_without_it(pool, claim):
    before = pool.slot(R0).sequence
    claim()
    pool.sent()
    assert pool.heard(pool.heartbeat(r0={"instance": "", "sequence": before})) == []
    assert pool.heard(pool.heartbeat(r0={"instance": ""}, unreported=1)) == []
    assert pool.heard(pool.heartbeat(r0={"instance": ""})) == [
        (R0, "instance vm holds it, but its agent reserves it for none")
    ]
    assert actions(pool) == [(R0, HoldSlot)]


def test_what_an_agent_keeps_for_an_instance_that_does_not_hold_it_is_freed(pool):
    assert pool.heard(pool.heartbeat(r0={"instance": "gone"})) == [
        (R0, "its agent reserves it for instance gone, which does not hold it")
    ]
    assert pool.sent()[0].action == FreeSlot(instance="gone", lease_epoch=0)


def test_leases_outlive_a_lost_host_and_its_agent_is_told_again_when_it_is_back(pool, claim):
    before = pool.slot(R0).sequence
    claim()
    pool.now_s += 11
    pool.tick()
    assert pool.sent() == []
    assert holders(pool) == {R0: "vm"}
    # The agent never got the command, which was dropped when its host was lost.
    empty = {"state": SlotState.EMPTY, "reason": ""}
    back = pool.heartbeat(r0=empty | {"instance": "", "sequence": before}, r1=empty, r2=empty)
    assert (R0, "instance vm holds it, but its agent reserves it for none") in pool.heard(back)
    assert actions(pool) == [(R0, HoldSlot)]
    assert pool.store.get(Host, "h0").alive


def test_what_a_new_database_finds_kept_stays_with_its_instance(new_pool, pool):
    known = pool.heartbeat(r0={"instance": "vm", "state": SlotState.READY, "function": "aes"})
    told = changed(known, host="h9", agent_id="agent of h9", slots=tuple(
        changed(slot, slot=slot.slot.replace("h0", "h9")) for slot in known.slots
    ))  # fmt: skip
    repairs = pool.heard(told)
    assert ("h9/c/r0", "its agent reserves it for instance vm, which therefore holds it") in repairs
    assert (pool.lease("h9/c/r0").holder, pool.lease("h9/c/r0").function) == ("vm", "aes")
    assert pool.sent() == []


def test_the_lease_of_an_instance_whose_card_is_gone_is_broken(pool, claim):
    claim()
    rest = tuple(slot for slot in pool.heartbeat().slots if slot.slot != R0)
    assert pool.heard(pool.heartbeat(slots=rest)) == [(R0, "its card has disappeared")]
    assert pool.lease(R0).broken == "its card has disappeared"


def events(pool):
    return [entry.event for entry in pool.lease(R0).history]


def test_a_lease_is_broken_until_its_slot_has_the_function_again(pool, claim):
    claim("aes")
    pool.report(pool.slot_report(R0, SlotState.LOADING, "aes"), pool.slot_report(R0, SlotState.READY, "aes"))
    assert events(pool) == ["Created"]
    pool.report(pool.slot_report(R0, SlotState.FAULTED, reason="it smokes"))
    assert (pool.lease(R0).broken, events(pool)) == ("it smokes", ["Created", "LeaseBroken"])
    # The card works again and the function is loading: the instance cannot use the slot before it is loaded.
    pool.report(pool.slot_report(R0, SlotState.EMPTY), pool.slot_report(R0, SlotState.LOADING, "aes"))
    assert pool.lease(R0).broken == "it smokes"
    pool.report(pool.slot_report(R0, SlotState.READY, "aes"))
    assert (pool.lease(R0).broken, events(pool)) == ("", ["Created", "LeaseBroken", "LeaseRestored"])


def test_the_events_of_an_instance_are_those_of_its_slots(pool, claim, release):
    claim("aes", count=2)
    pool.now_s += 1.0
    pool.report(pool.slot_report(R1, SlotState.FAULTED, reason="it smokes"))
    with pool.tx() as tx:
        found = events_of(tx, "instance", "vm", "p")
        for uuid, project_id in (("vm", "q"), ("vm2", "p")):
            with pytest.raises(NotFound, match=f"no instance {uuid} that holds slots"):
                events_of(tx, "instance", uuid, project_id)
    assert [(one.number, one.event, one.reason) for one in found] == [
        (0, "Created", f"slot {R0}"),
        (1, "Created", f"slot {R1}"),
        (2, "LeaseBroken", f"slot {R1}: it smokes"),
    ]


def test_a_slot_that_fails_before_its_first_load_breaks_the_lease(pool, claim):
    claim("aes")
    pool.report(pool.slot_report(R0, SlotState.FAULTED))
    assert pool.lease(R0).broken == "it has failed"


@pytest.mark.parametrize("first", [SlotState.LOADING, SlotState.READY])
def test_a_function_that_is_not_in_the_slot_breaks_the_lease(pool, claim, first):
    """The load is refused, or the function disappears from the slot without a fault."""
    claim("aes")
    pool.report(pool.slot_report(R0, first, "aes"), pool.slot_report(R0, SlotState.EMPTY))
    assert pool.lease(R0).broken == "aes is not loaded"


def test_a_lost_host_breaks_the_leases_of_its_instances(pool, claim):
    claim("aes")
    pool.now_s += 1000.0
    pool.tick()
    assert pool.lease(R0).broken == "its host is lost"


def test_other_holders_and_other_functions_break_no_lease(pool, claim, release):
    pool.heard(pool.heartbeat(r0={"state": SlotState.READY, "function": "soft"}))
    claim("aes", count=2)  # both small slots: `aes` replaces `soft` on R0
    pool.report(pool.slot_report(R0, SlotState.EMPTY), pool.slot_report(R0, SlotState.READY, "aes"))
    assert events(pool) == ["Created"]
    release()
    batch = pool.create("aes")
    pool.plan()
    slot = pool.job(f"{batch}.0").slot
    lease = pool.lease(slot)
    pool.report(pool.slot_report(slot, SlotState.LOADING, "aes"), pool.slot_report(slot, SlotState.EMPTY))
    assert (lease.kind, pool.lease(slot)) == (LeaseKind.POOL, lease)


def test_a_catalogue_without_a_function_that_instances_use_is_refused_with_their_names(pool, claim, make_catalogue):
    for instance in ("vm2", "vm1"):
        claim("aes", instance=instance)
    with pool.tx() as tx:
        leases = tx.leases()
    check_functions_in_use(leases, pool.catalogue)
    without = make_catalogue({"flow": (4.0, "large")}, slots=["small", "small", "large"], load_s=0.5, b_s_per_byte=1e-6)
    with pytest.raises(InvalidCatalogue, match="functions that instances use: aes by vm1, vm2; delete"):
        check_functions_in_use(leases, without)
