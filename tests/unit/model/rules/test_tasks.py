"""Tasks get all their slots, linked as requested, or none.  1000 bytes take 1.001 s as aes, 2.001 s as sha256."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from task_bench import Tasks

from fpga_pool.model.exceptions import InvalidInput, InvalidTransition, NoSlotFits, NotFound
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.messages.agents import SlotChanged
from fpga_pool.model.objects.pool import ENDED_JOBS, BatchState, JobState, LeaseKind, SlotState
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.model.rules.instance.instances import Claim, claim_slots, held_by, not_to_be_had, release_slots
from fpga_pool.model.rules.pipeline.outlook import job_details
from fpga_pool.model.rules.shared.changes import displace_task
from fpga_pool.model.rules.task import decisions
from fpga_pool.model.rules.task.admission import owned_task
from fpga_pool.sim.store import MemoryTransaction


@pytest.fixture
def pool(new_pool, catalogue):
    """A pool without a host."""
    pool = type(new_pool())(catalogue)
    yield pool
    pool.check_invariants()


@pytest.fixture
def tasks(pool):
    tasks = Tasks(pool)
    tasks.ring_up()  # host r: four cards in a ring with one small slot each, which load in 0.5 s
    return tasks


def run(tasks, uuid, state=JobState.COMPLETED):
    for share in tasks.shares(uuid):
        if share.state not in ENDED_JOBS:
            tasks.pool.bring(share.uuid, state)


def cards(tasks, uuid):
    return [slot.split("/")[1] for slot in tasks.slots(uuid)]


def test_a_task_gets_slots_in_the_order_of_their_links_and_gives_them_back_when_its_last_share_ends(pool, tasks):
    uuid = tasks.create(3, "line")
    assert tasks.place() == [uuid]
    order = [int(card[1]) for card in cards(tasks, uuid)]
    assert [(after - before) % 4 for before, after in pairwise(order)] in ([1, 1], [3, 3])
    first, *others = tasks.shares(uuid)
    pool.bring(first.uuid, JobState.COMPLETED)
    assert tasks.get(uuid).state is TaskState.RUNNING
    assert len(tasks.held()[uuid]) == 3
    for share in others:
        pool.bring(share.uuid, JobState.RESULT_HELD)
    assert tasks.get(uuid).state is TaskState.COMPLETED
    assert pool.batch(uuid).state is BatchState.COMPLETED
    assert tasks.held() == {}


def test_a_ring_of_four_waits_for_all_four_and_is_told_when_it_can_begin(pool, tasks):
    narrow, ring = tasks.create(2, "line", "sha256"), tasks.create(4, "ring")
    assert tasks.place() == [narrow]
    detail = tasks.detail(ring)
    assert detail.pending_reason == "4 slots for aes with the required links (ring) are not free at the same time"
    # 0.5 s for the load of sha256, 2.001 s for 1000 bytes of it
    assert detail.expected_at - pool.now_s == pytest.approx(2.501)
    assert tasks.place() == []
    run(tasks, narrow)
    assert tasks.place() == [ring]
    assert sorted(cards(tasks, ring)) == ["c0", "c1", "c2", "c3"]


def test_what_cannot_be_linked_so_anywhere_is_refused_and_what_is_out_of_service_waits(pool, tasks):
    with pytest.raises(NoSlotFits, match="no host of the pool has 5 slots for aes linked as a line; at most 4"):
        tasks.create(5, "line")
    with pytest.raises(NoSlotFits, match="at most 2 exist"):  # three of four cards in a ring do not form a ring
        tasks.create(3, "ring")
    with pytest.raises(InvalidInput, match="expected 1 to 62"):
        tasks.create(0)
    assert tasks.get("t1") is None
    pool.drain("r/c0/s0")
    uuid = tasks.create(4, "ring")
    assert tasks.place() == []
    assert tasks.detail(uuid).pending_reason == "no host has 4 slots in service for aes with the required links (ring)"
    pool.resume("r/c0/s0")
    assert tasks.place() == [uuid]


def test_slots_of_one_card_make_a_ring_in_the_middle_of_a_line_of_cards(pool):
    tasks = Tasks(pool)
    tasks.ring_up(cards=2, slots=3)
    wide, ring = tasks.create(4, "line"), tasks.create(3, "ring")
    assert tasks.place() == [wide]
    assert tasks.place() == []  # only two slots are left
    run(tasks, wide)
    assert tasks.place() == [ring]
    assert len(set(cards(tasks, ring))) == 1


def test_batches_are_planned_on_other_slots_than_those_of_tasks(pool, tasks):
    uuid = tasks.create(4, "ring")
    tasks.place()
    pool.host_up()
    batch = pool.create(*["aes"] * 6)
    assert len(pool.plan()) == 6
    assert {pool.job(f"{batch}.{i}").slot.split("/")[0] for i in range(6)} == {"h0"}
    assert tasks.get(uuid).state is TaskState.RUNNING


def busy(pool, tasks):
    """Fill the ring with jobs of a batch: on each slot one computes and one waits for its input."""
    batch = pool.create(*["aes"] * 8, requester="r")
    assert len(pool.plan()) == 8
    jobs = [pool.job(f"{batch}.{i}") for i in range(8)]
    for slot in {job.slot for job in jobs}:
        pool.bring(min((job for job in jobs if job.slot == slot), key=lambda job: job.order).uuid, JobState.RUNNING)
    return jobs


def test_a_patient_task_waits_until_slots_are_free_at_once(pool, tasks):
    jobs = busy(pool, tasks)
    uuid = tasks.create(4, "ring")
    assert tasks.place() == []
    for job in jobs:
        pool.bring(job.uuid, JobState.COMPLETED)
    assert tasks.place() == [uuid]


def test_an_impatient_task_gets_slots_behind_what_computes_there_and_what_waits_goes_elsewhere(pool, tasks):
    busy(pool, tasks)
    uuid = tasks.create(4, "ring")
    pool.now_s += 31.0
    assert tasks.place() == [uuid]
    queues = {slot: [job.uuid for job in pool.contents().active_jobs if job.slot == slot] for slot in tasks.slots(uuid)}
    assert all(len(queue) == 2 for queue in queues.values())  # a computing job and a share
    assert pool.plan() == []  # four jobs have no slot, and tasks hold all slots in service
    pool.host_up()
    assert len(pool.plan()) == 4


def test_a_task_that_came_later_leaves_a_batch_that_waits_its_last_slot(pool, tasks):
    busy(pool, tasks)
    first = tasks.create(4, "ring")
    pool.now_s += 31.0
    tasks.place()  # four jobs of the batch have no slot now
    later = tasks.create(4, "ring")
    run(tasks, first)
    for job in pool.contents().active_jobs:
        pool.bring(job.uuid, JobState.COMPLETED)
    for _ in range(3):
        pool.now_s += 31.0
        assert tasks.place() == []
    assert len(pool.plan()) == 4
    for job in pool.contents().active_jobs:
        pool.bring(job.uuid, JobState.COMPLETED)
    assert tasks.place() == [later]


def test_a_wide_task_is_not_starved_by_narrow_ones(pool, tasks):
    narrow = [tasks.create(2, "line") for _ in range(2)]
    assert tasks.place() == narrow
    wide = tasks.create(4, "ring")
    pool.now_s += 31.0
    for _ in range(3):
        tasks.create(2, "line")
    run(tasks, narrow[0])
    assert tasks.place() == []  # the two free slots are reserved
    run(tasks, narrow[1])
    assert tasks.place() == [wide]


def test_a_slot_that_fails_stops_the_whole_task_which_begins_again_with_what_is_not_complete(pool, tasks):
    uuid = tasks.create(2, "line")
    tasks.place()
    done, lost = tasks.shares(uuid)
    pool.bring(done.uuid, JobState.RESULT_HELD)
    pool.bring(lost.uuid, JobState.RUNNING)
    pool.report(pool.slot_report(lost.slot, SlotState.FAULTED, reason="smoke"), host="r")
    task = tasks.get(uuid)
    assert (task.state, task.failures) == (TaskState.QUEUED, 1)
    assert "smoke" in task.reason
    assert tasks.held() == {}
    assert tasks.place() == [uuid]
    assert lost.slot not in tasks.held()[uuid]
    assert [share.attempt for share in tasks.shares(uuid)] == [1, 2]
    run(tasks, uuid)
    assert tasks.get(uuid).state is TaskState.COMPLETED


def test_shares_on_a_host_that_is_lost_all_begin_again_elsewhere(pool, tasks):
    tasks.ring_up("s")
    uuid = tasks.create(4, "ring")
    tasks.place()
    lost = tasks.slots(uuid)[0].split("/")[0]
    run(tasks, uuid, JobState.RUNNING)
    pool.sent()
    pool.now_s += 12.0
    for host in {"r", "s"} - {lost}:
        pool.heard(pool.heartbeat(host))
    pool.tick()
    assert pool.sent() == []  # no agent can get commands for the lost shares
    assert tasks.place() == [uuid]
    assert {slot.split("/")[0] for slot in tasks.slots(uuid)} == {"r", "s"} - {lost}


def test_a_task_that_loses_its_slots_too_often_is_given_up(pool, tasks):
    uuid = tasks.create(2, "line")
    for attempt in range(pool.settings.max_attempts):
        pool.tick()
        assert tasks.place() == [uuid], attempt
        pool.fail(tasks.shares(uuid)[0].uuid)
    assert tasks.place() == []
    pool.tick()
    task = tasks.get(uuid)
    assert task.state is TaskState.FAILED
    assert task.reason == "share 0: given up after 3 attempts; last: smoke"
    assert pool.batch(uuid).state is BatchState.FAILED


def test_a_share_that_fails_for_good_has_the_others_cancelled(pool, tasks):
    uuid = tasks.create(3, "line")
    tasks.place()
    bad, *others = tasks.shares(uuid)
    pool.fail(bad.uuid, retryable=False)
    assert tasks.get(uuid).state is TaskState.RUNNING  # until its agents have released the other shares
    for share in others:
        pool.released(share.uuid)
    assert tasks.get(uuid).state is TaskState.FAILED
    assert [share.state for share in tasks.shares(uuid)] == [JobState.FAILED, JobState.CANCELLED, JobState.CANCELLED]


@pytest.mark.parametrize("by_batch", [False, True])
def test_a_task_is_cancelled_when_nothing_of_it_is_left(pool, tasks, by_batch):
    queued, running = tasks.create(4, "ring"), tasks.create(2, "line")
    pool.drain("r/c0/s0")
    assert tasks.place() == [running]
    for uuid in (queued, running):
        pool.cancel(uuid) if by_batch else tasks.cancel(uuid)
    assert tasks.get(queued).state is TaskState.CANCELLED
    assert tasks.get(running).state is TaskState.RUNNING
    for share in tasks.shares(running):
        pool.released(share.uuid)
    assert tasks.get(running).state is TaskState.CANCELLED
    with pytest.raises(InvalidTransition):
        tasks.cancel(running)


def test_another_projects_task_looks_as_if_it_did_not_exist(pool, tasks):
    uuid = tasks.create(1)
    with pool.tx() as tx, pytest.raises(NotFound, match="no task t1"):
        owned_task(tx, uuid, "other")


def test_a_virtual_machine_takes_a_slot_of_a_task_and_the_task_waits_for_as_many_again(pool, tasks):
    uuid = tasks.create(4, "ring")
    tasks.place()
    claim = Claim(
        host="r", instance="vm", project_id="p", wanted=AcceleratorRequest(function="aes", count=1), allocated=None
    )
    with pool.tx() as tx:
        claim_slots(tx, claim, pool.catalogue, pool.settings, pool.now_s)
    assert tasks.get(uuid).state is TaskState.QUEUED
    assert {share.state for share in tasks.shares(uuid)} == {JobState.PENDING}
    assert {lease.kind for lease in pool.contents().leases} == {LeaseKind.INSTANCE}
    with pool.tx() as tx:
        release_slots(tx, held_by(tx, "r", "vm"), pool.now_s)
    assert tasks.place() == [uuid]


def test_what_has_changed_since_it_was_decided_is_left_out(pool, tasks):
    uuid = tasks.create(4, "ring")
    look = tasks.look()
    choices = tasks.decide(look)
    pool.drain("r/c2/s0")
    assert tasks.commit(look, choices) == []
    assert tasks.held() == {}
    pool.resume("r/c2/s0")
    assert tasks.commit(look, choices) == [uuid]
    assert tasks.commit(look, choices) == []


def test_a_drained_slot_lets_what_computes_end_and_stops_a_task_that_has_not_begun_there(pool, tasks):
    uuid = tasks.create(2, "line")
    tasks.place()
    run(tasks, uuid, JobState.RUNNING)
    slot = tasks.slots(uuid)[0]
    pool.drain(slot)
    assert tasks.get(uuid).state is TaskState.RUNNING
    run(tasks, uuid)
    assert pool.slot(slot).state is SlotState.DRAINED
    other = tasks.create(2, "line")
    tasks.place()
    pool.drain(tasks.slots(other)[0])
    assert tasks.get(other).state is TaskState.QUEUED


def test_an_agent_that_knows_no_share_any_more_stops_the_task_once(pool, tasks):
    uuid = tasks.create(3, "line")
    tasks.place()
    run(tasks, uuid, JobState.RUNNING)
    pool.sent()
    for slot in tasks.slots(uuid):
        pool.report(SlotChanged(slot=slot, at=pool.now_s, state=SlotState.EMPTY), host="r")
    pool.heard(pool.heartbeat("r", jobs=[]))
    assert (tasks.get(uuid).state, tasks.get(uuid).failures) == (TaskState.QUEUED, 1)


def test_contended_slots_go_to_whom_the_ranking_puts_first(pool, tasks):
    """The lattice policy ranks the ring of four above both lines of two, although it was created last."""
    first, second, ring = tasks.create(2, "line"), tasks.create(2, "line"), tasks.create(4, "ring")
    assert tasks.place() == [ring]
    run(tasks, ring)
    assert tasks.place() == [first, second]


def test_where_jobs_of_the_pool_still_compute_the_pool_has_the_slot_again_when_a_task_leaves_it(pool, tasks):
    busy(pool, tasks)
    uuid = tasks.create(4, "ring")
    pool.now_s += 31.0
    assert tasks.place() == [uuid]
    pool.fail(tasks.shares(uuid)[0].uuid)
    assert tasks.get(uuid).state is TaskState.QUEUED
    assert [lease.kind for lease in pool.contents().leases] == [LeaseKind.POOL] * 4


def test_a_task_whose_end_was_asked_for_ends_when_a_virtual_machine_takes_its_slot(pool, tasks):
    uuid = tasks.create(2, "line")
    tasks.place()
    run(tasks, uuid, JobState.RUNNING)
    tasks.cancel(uuid)
    wanted = AcceleratorRequest(function="aes", count=4)
    with pool.tx() as tx:
        claim = Claim(host="r", instance="vm", project_id="p", wanted=wanted)
        claim_slots(tx, claim, pool.catalogue, pool.settings, pool.now_s)
    assert tasks.get(uuid).state is TaskState.CANCELLED
    assert tasks.held() == {}


def test_no_slot_of_a_task_that_cannot_be_stopped_is_to_be_had(new_pool, make_catalogue, make_stoppable):
    """Its shares compute for a minute, longer than a claim waits; one complete share makes no difference."""
    rigid = make_stoppable(60.0) | {"preemptible": False, "progress_kept": False}
    catalogue = make_catalogue({"aes": rigid}, slots=["small", "large"], load_s=0.5, b_s_per_byte=1e-6)
    pool = type(new_pool())(catalogue)
    tasks = Tasks(pool)
    tasks.ring_up()
    uuid = tasks.create(3, "line")
    tasks.place()
    done, *others = tasks.shares(uuid)
    pool.bring(done.uuid, JobState.COMPLETED)
    for share in others:
        pool.bring(share.uuid, JobState.RUNNING)
    with pool.tx() as tx:
        assert not_to_be_had(tx, catalogue, pool.settings, pool.now_s) == (set(), tasks.held()[uuid])


def test_a_task_that_leaves_its_slots_reads_its_own_leases_only(pool, tasks, monkeypatch):
    tasks.create(2, "line")
    gone = tasks.create(2, "line")
    assert len(tasks.place()) == 2
    read, leases = [], MemoryTransaction.leases

    def counted(self, **which):
        read.append(leases(self, **which))
        return read[-1]

    with pool.tx() as tx, monkeypatch.context() as patched:
        patched.setattr(MemoryTransaction, "leases", counted)
        displace_task(tx, gone, "test", pool.now_s)
    assert {lease.holder for found in read for lease in found} == {gone}


def test_what_the_tasks_of_a_list_of_jobs_wait_for_is_worked_out_once(pool, tasks, monkeypatch):
    """The slots of the pool are examined once for all waiting tasks and once for all batches, per function."""
    for function in ("aes", "sha256") * 3:
        tasks.create(4, function=function)
        pool.create(function, "aes", requester="r")
    found = [tasks.detail(f"t{number}") for number in range(1, 7)]
    gone_through, slots_by_host = [], decisions.slots_by_host

    def counted(slots, function, catalogue):
        gone_through.append(function)
        return slots_by_host(slots, function, catalogue)

    monkeypatch.setattr(decisions, "slots_by_host", counted)
    with pool.tx() as tx:
        jobs = [share for one in found for share in one.share_list]
        details = job_details(tx, jobs, pool.catalogue, pool.now_s)
    assert sorted(gone_through) == ["aes", "aes", "sha256", "sha256"]  # once for tasks, once for batches
    told = {detail.job.batch_uuid: (detail.pending_reason, detail.expected_at) for detail in details}
    assert told == {
        one.task.uuid: (one.pending_reason or "it is about to be planned", one.expected_at) for one in found
    }
    assert len(set(told.values())) > 1
