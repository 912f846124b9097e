"""The contract of all implementations of model.transaction.Transaction."""

import math
import uuid
from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict, DuplicateId, NotFound
from fpga_pool.model.messages.agents import AssignJob, ReleaseFlow
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.hosts import Server
from fpga_pool.model.objects.pool import BatchState, JobState, LeaseState, RateSegment, SlotState
from fpga_pool.model.transaction import Backlog, PendingBatch
from fpga_pool.model.values import changed


def test_everything_that_was_added_reads_back_equal(begin, make):
    history = (HistoryEntry(1.5, "Planned", "PENDING", "WAITING_INPUT"), HistoryEntry(2.25, "InputStaged", "A", "B"))
    batch = make.batch(state=BatchState.RUNNING, name="Märchen \N{SNOWMAN}", planned_makespan_s=0.1, history=history)
    job = make.job(
        batch,
        state=JobState.STAGED,
        transfer=(RateSegment(0.0, 0.1, 1e9), RateSegment(0.1, 1 / 3, 2.5e8)),
        flow="192.0.2.1:4711",
        dispatched_at=1_790_000_000.123456,
        result_bytes=2**62,
        cancel_requested=True,
        history=history,
    )
    host = make.host(egress_bps=float("inf"))
    slot = make.slot(state=SlotState.BUSY, function="aes", job=job.uuid, sequence=7)
    lease = make.lease(slot)
    with begin() as tx:
        tx.add(job, lease, slot, host, batch)  # in any order
    with begin() as tx:
        assert tx.batch(batch.uuid) == batch
        assert tx.job(job.uuid) == job
        assert tx.host(host.name) == host
        assert tx.slot(slot.name) == slot
        assert list(tx.leases(slots=[slot.name])) == [lease]


def test_a_transaction_reads_what_it_has_saved(begin, make, saved):
    batch, job = saved(*(batch := make.batch(), make.job(batch)))
    with begin() as tx:
        tx.save(replace(tx.job(job.uuid), state=JobState.WAITING_INPUT, slot="s", host="h"))
        assert tx.job(job.uuid).state is JobState.WAITING_INPUT
        assert [found.uuid for found in tx.active_jobs(slot="s")] == [job.uuid]
        assert not tx.pending_batches()
        assert [found.generation for found in tx.batch_jobs(batch.uuid)] == [1]


def test_each_save_grows_the_generation_by_one_within_a_transaction_too(begin, counted, bump):
    with begin() as tx:
        for _ in range(3):
            tx.save(bump(tx.batch(counted.uuid)))
        assert tx.batch(counted.uuid).generation == 3
    with begin() as tx:
        assert tx.batch(counted.uuid).generation == 3
        assert tx.batch(counted.uuid).jobs_completed == 3


def test_saving_what_was_read_before_another_save_is_a_conflict(begin, counted, bump):
    with begin() as tx:
        old = tx.batch(counted.uuid)
        tx.save(bump(old))
    with begin() as tx, pytest.raises(Conflict, match=f"batch {counted.uuid}: changed concurrently"):
        tx.save(bump(old))
    with begin() as tx:
        assert tx.batch(counted.uuid).jobs_completed == 1


def test_saving_twice_from_one_read_is_a_conflict(begin, counted, bump):
    with begin() as tx:
        old = tx.batch(counted.uuid)
        tx.save(bump(old))
        with pytest.raises(Conflict):
            tx.save(bump(old))


def test_saving_what_does_not_exist_is_not_found(begin, make):
    with begin() as tx, pytest.raises(NotFound, match="no host nowhere"):
        tx.save(make.host("nowhere"))


@pytest.mark.parametrize("noun", ["batch", "job", "host", "slot"])
def test_reading_what_does_not_exist_names_it(begin, noun):
    with begin() as tx, pytest.raises(NotFound, match=f"no {noun} nowhere"):
        getattr(tx, noun)("nowhere")


def test_adding_what_exists_names_it_and_leaves_the_transaction_usable(begin, make, saved):
    known = saved(make.batch())
    other = make.batch()
    with begin() as tx:
        with pytest.raises(DuplicateId, match=f"batch {known.uuid}: exists already"):
            tx.add(replace(known, name="impostor"))
        tx.add(other)
    with begin() as tx:
        assert tx.batch(known.uuid) == known
        assert tx.batch(other.uuid) == other


def test_adding_the_same_object_twice_at_once_is_refused(begin, make):
    batch = make.batch()
    with pytest.raises(DuplicateId), begin() as tx:
        tx.add(batch, batch)
    with begin() as tx, pytest.raises(NotFound):
        tx.batch(batch.uuid)


def test_an_exception_rolls_everything_back_the_outbox_too(begin, outbox, make, counted, bump):
    job = make.job(counted)
    generations = []

    def change_and_fail():
        with begin() as tx:
            generations.append(tx.shard.pool_generation)
            tx.add(job)
            tx.save(bump(tx.batch(counted.uuid)))
            tx.record_run(make.run(job))
            tx.send(make.command())
            assert len(tx.batch_jobs(counted.uuid)) == 1
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        change_and_fail()
    assert outbox() == []
    with begin() as tx:
        assert tx.batch(counted.uuid) == counted
        assert list(tx.batch_jobs(counted.uuid)) == []
        tx.add(job)
        tx.record_run(make.run(job))
        assert [tx.shard.pool_generation] == generations


def test_the_outbox_keeps_the_order_of_sending_and_the_whole_command(begin, outbox, make):
    action = AssignJob(job="j", attempt=2, project_id="p", function="aes", input_bytes=2**40, order=3, expected_s=0.125)
    commands = [make.command(sequence, action=action) for sequence in (5, 1, 3, 2)]
    with begin() as tx:
        tx.send(commands[0])
        tx.send(commands[1])
    with begin() as tx:
        tx.send(commands[2])
        tx.send(commands[3])
    assert outbox() == commands


def test_commands_for_a_lost_host_are_dropped_also_those_of_this_transaction(begin, outbox, make):
    kept = make.command(slot="host-1/card-0/0")
    # Heartbeats do not contain flows, so the agent must get commands about flows that ended while it was away.
    flow = make.command(host="host-0", slot="", action=ReleaseFlow(job="j", attempt=1))
    with begin() as tx:
        tx.send(make.command())
        tx.send(kept)
        tx.send(flow)
    with begin() as tx:
        tx.send(make.command())
        tx.drop_commands("host-0")
    assert outbox() == [kept, flow]


def test_a_second_completion_of_a_job_is_refused_with_all_that_is_told_with_it(begin, make, saved):
    batch, job = saved(*(batch := make.batch(), make.job(batch)))
    with begin() as tx:
        tx.record_run(make.run(job))

    def complete_again():
        with begin() as tx:
            tx.save(replace(batch, jobs_completed=1))
            tx.record_run(make.run(job, attempt=2))

    with pytest.raises(DuplicateId, match=f"run {job.uuid}: exists already"):
        complete_again()
    with begin() as tx:
        assert tx.batch(batch.uuid).jobs_completed == 0


def test_leases_can_be_asked_for_by_slot_by_host_and_by_holder(begin, make, saved):
    slots = [make.slot(), make.slot(region="1"), make.slot(host="host-1")]
    leases = [make.lease(slot, holder=holder) for slot, holder in zip(slots, ("vm", "pool", "vm"), strict=True)]
    saved(make.host(), make.host("host-1"), *slots, *leases)
    with begin() as tx:
        assert list(tx.leases(host="host-0")) == leases[:2]
        assert list(tx.leases(host="host-1")) == leases[2:]
        assert list(tx.leases(slots=[slots[1].name])) == [leases[1]]
        assert list(tx.leases(slots=[slots[2].name, slots[0].name, "none"])) == [leases[0], leases[2]]
        assert list(tx.leases(slots=[])) == []
        assert list(tx.leases(holders=["vm", "nobody"])) == [leases[0], leases[2]]
    with begin() as tx:
        tx.save(replace(leases[2], state=LeaseState.RELEASED))
    with begin() as tx:
        assert list(tx.leases(holders=["vm"])) == [leases[0]]


def test_a_second_lease_on_a_held_slot_is_refused(begin, make, saved):
    _, slot, lease = saved(*(make.host(), slot := make.slot(), make.lease(slot)))
    with begin() as tx, pytest.raises(Conflict, match=f"slot {slot.name}: it already has an active lease"):
        tx.add(make.lease(slot, epoch=2))
    with begin() as tx:
        assert list(tx.leases()) == [lease]


def test_two_leases_of_a_slot_in_one_add_are_refused(begin, make, saved):
    _, slot = saved(make.host(), make.slot())
    with pytest.raises(Conflict), begin() as tx:
        tx.add(make.lease(slot), make.lease(slot, epoch=2))
    with begin() as tx:
        assert list(tx.leases()) == []


def test_a_released_slot_can_be_leased_in_the_same_transaction(begin, make, saved):
    _, slot, lease = saved(*(make.host(), slot := make.slot(), make.lease(slot)))
    successor = make.lease(slot, epoch=2)
    with begin() as tx:
        tx.save(replace(lease, state=LeaseState.RELEASED, released_at=3.0))
        assert list(tx.leases(slots=[slot.name])) == []
        tx.add(successor)
    with begin() as tx:
        assert list(tx.leases()) == [successor]


def test_pending_batches_come_oldest_first_with_what_they_ask_for_and_their_jobs_by_index(begin, make, saved):
    young, old = make.batch(created_at=20.0), make.batch(created_at=10.0, policy="fifo")
    jobs = {
        name: make.job(batch, index=index, state=state, function=function, input_bytes=input_bytes)
        for name, batch, index, state, function, input_bytes in [
            ("young 0", young, 0, JobState.PENDING, "sha256", 30),
            ("old 10", old, 10, JobState.PENDING, "sha256", 10),
            ("old 9", old, 9, JobState.PENDING, "fir", 20),
            ("old 8", old, 8, JobState.RUNNING, "gzip", 40),
        ]
    }
    of_one, of_two = {"jobs": 1, "largest_input_bytes": 30}, {"jobs": 2, "largest_input_bytes": 20}
    saved(young, old, make.batch(created_at=5.0), *jobs.values())
    with begin() as tx:
        assert list(tx.pending_batches().items()) == [
            (old.uuid, PendingBatch(created_at=10.0, policy="fifo", functions=frozenset({"sha256", "fir"}), **of_two)),
            (young.uuid, PendingBatch(created_at=20.0, policy=young.policy, functions=frozenset({"sha256"}), **of_one)),
        ]
        assert list(tx.pending_jobs([old.uuid])) == [jobs["old 9"], jobs["old 10"]]


def test_policies_at_work_are_those_of_batches_with_jobs_that_have_not_ended(begin, make, saved):
    for policy, *states in [
        ("waits", JobState.PENDING, JobState.COMPLETED),
        ("runs", JobState.RUNNING, JobState.RUNNING),
        ("ended", JobState.COMPLETED, JobState.FAILED),
    ]:
        batch = make.batch(policy=policy)
        saved(batch, *(make.job(batch, index=index, state=state) for index, state in enumerate(states)))
    with begin() as tx:
        assert set(tx.policies_at_work()) == {"waits", "runs"}


def test_newest_jobs_are_those_of_some_policies_and_no_older_than_asked_for(begin, make, saved):
    def batch(created_at, policy):
        return make.batch(created_at=created_at, policy=policy)

    old, other, young, youngest = batch(1.0, "a"), batch(5.0, "b"), batch(2.0, "a"), batch(3.0, "c")
    ended = [make.job(young, index=index, state=JobState.COMPLETED) for index in range(2)]
    waiting = make.job(youngest)
    saved(old, other, young, youngest, make.job(old), make.job(other), *ended, waiting)
    with begin() as tx:
        assert list(tx.newest_jobs(["a", "c"], 2.0, 10)) == [waiting, ended[1], ended[0]]
        assert list(tx.newest_jobs(["a", "c"], 2.0, 2)) == [waiting, ended[1]]
        assert list(tx.newest_jobs([], 0.0, 10)) == []


def test_jobs_that_somebody_changed_are_not_among_the_unchanged(begin, make, saved):
    batch = make.batch()
    same, changed, gone = (make.job(batch, index=index) for index in range(3))
    saved(batch, same, changed)
    with begin() as tx:
        same, changed = tx.job(same.uuid), tx.job(changed.uuid)
        tx.save(replace(changed, state=JobState.RUNNING))
    with begin() as tx:
        assert list(tx.unchanged([changed, same, gone])) == [same]
        tx.save(replace(same, state=JobState.RUNNING))
        assert list(tx.unchanged([same])) == []


def test_active_jobs_are_those_planned_staged_or_running_in_the_order_of_their_slot(begin, make, saved):
    batch = make.batch()
    states = list(JobState)
    jobs = [
        make.job(batch, index=i, state=state, host="h0", slot=f"h0/c/{i % 2}", order=-i)
        for i, state in enumerate(states)
    ]
    elsewhere = make.job(batch, index=99, state=JobState.RUNNING, host="h1", slot="h1/c/0", flow="::1:5")
    saved(batch, *jobs, elsewhere)
    with begin() as tx:
        assert [job.index for job in tx.active_jobs(flow="::1:5")] == [99]
        # WAITING_INPUT is state 1, STAGED 2, RUNNING 3; the orders are -1, -2, -3 and the slots 1, 0, 1.
        assert [job.index for job in tx.active_jobs(host="h0")] == [2, 3, 1]
        assert [job.index for job in tx.active_jobs(slot="h0/c/1")] == [3, 1]
        assert [job.index for job in tx.active_jobs()] == [2, 3, 1, 99]


def test_overdue_is_what_was_to_have_begun_or_ended_and_has_not(begin, make, saved):
    batch = make.batch()
    plan = {"host": "h0", "slot": "h0/c/0", "dispatched_at": 100.0, "start_s": 2.0, "end_s": 5.0}
    states = (JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING, JobState.RESULT_HELD)
    waiting, staged, running, ended = (make.job(batch, index=i, state=state, **plan) for i, state in enumerate(states))
    saved(batch, waiting, staged, running, ended)
    with begin() as tx:
        assert tx.overdue(102.0) == {}
        assert tx.overdue(103.0) == {waiting.uuid: 102.0, staged.uuid: 102.0}
        assert tx.overdue(106.0) == {waiting.uuid: 102.0, staged.uuid: 102.0, running.uuid: 105.0}


def test_inputs_due_are_those_on_their_way_beyond_a_point_in_time(begin, make, saved):
    batch = make.batch()
    transfer = (RateSegment(0.0, 2.0, 8e6), RateSegment(3.0, 5.0, 8e6))
    moving = make.job(batch, index=0, state=JobState.WAITING_INPUT, dispatched_at=100.0, transfer=transfer)
    there = make.job(batch, index=1, state=JobState.STAGED, dispatched_at=100.0, transfer=transfer)
    without = make.job(batch, index=2, state=JobState.WAITING_INPUT, dispatched_at=100.0, transfer=())
    saved(batch, moving, there, without)
    with begin() as tx:
        assert [job.uuid for job in tx.inputs_due(104.0)] == [moving.uuid]
        assert tx.inputs_due(105.0) == []


def test_overdue_inputs_are_those_not_here_since_a_point_in_time_small_ones_left_out_if_asked(begin, make, saved):
    batch = make.batch()
    way = {"dispatched_at": 100.0, "transfer": (RateSegment(0.0, 2.0, 8e6),)}
    waiting = [make.job(batch, index=n, state=JobState.WAITING_INPUT, input_bytes=n, **way) for n in range(2)]
    saved(batch, *waiting, make.job(batch, index=2, state=JobState.STAGED, input_bytes=9, **way))
    with begin() as tx:
        assert tx.overdue_inputs(102.0) == []
        assert {job.uuid for job in tx.overdue_inputs(102.1)} == {job.uuid for job in waiting}
        assert [job.uuid for job in tx.overdue_inputs(102.1, above_bytes=0)] == [waiting[1].uuid]


def test_a_backlog_is_what_the_active_jobs_of_a_slot_still_ask_of_it(begin, make, saved):
    batch = make.batch()
    on_it = {"host": "h0", "slot": "h0/c/0"}
    moves = (RateSegment(0.5, 1.5, 8e6),)
    saved(
        batch,
        make.job(
            batch, index=0, state=JobState.RUNNING, order=3, dispatched_at=100.0, end_s=9.0, transfer=moves, **on_it
        ),
        make.job(
            batch,
            index=1,
            state=JobState.WAITING_INPUT,
            order=4,
            dispatched_at=90.0,
            end_s=4.0,
            transfer=moves,
            **on_it,
        ),
        make.job(
            batch, index=2, state=JobState.COMPLETED, order=7, dispatched_at=200.0, end_s=9.0, transfer=moves, **on_it
        ),
        make.job(batch, index=3, state=JobState.STAGED, host="h1", slot="h1/c/0"),
    )
    with begin() as tx:
        first, second = tx.backlogs()
        # The running job ends last, at 100 + 9. Only the other job waits for its input, until 90 + 1.5.
        assert first == Backlog(slot="h0/c/0", free_at=109.0, inputs_due_at=91.5, last_order=4)
        assert (second.slot, second.inputs_due_at) == ("h1/c/0", 0.0)


def test_held_results_are_those_of_one_host(begin, make, saved):
    batch = make.batch()
    here, _, _ = jobs = [
        make.job(batch, index=0, state=JobState.RESULT_HELD, host="h0"),
        make.job(batch, index=1, state=JobState.RESULT_HELD, host="h1"),
        make.job(batch, index=2, state=JobState.COMPLETED, host="h0"),
    ]
    saved(batch, *jobs)
    with begin() as tx:
        assert list(tx.held_results("h0")) == [here]


def test_hosts_and_slots_are_listed_by_name(begin, make, saved):
    saved(make.host("b"), make.host("a"), make.slot("b", "1"), make.slot("b", "0"), make.slot("a", "0"))
    with begin() as tx:
        assert [host.name for host in tx.hosts()] == ["a", "b"]
        assert [slot.name for slot in tx.slots()] == ["a/card-0/0", "b/card-0/0", "b/card-0/1"]
        assert [slot.name for slot in tx.slots("b")] == ["b/card-0/0", "b/card-0/1"]


def test_servers_are_listed_by_host_and_by_uuid_and_forgotten(begin, make, saved):
    saved(make.host("a"), make.host("b"))
    one, other, moving = [
        Server(name=f"{host}/{uuid}", uuid=uuid, host=host, project_id="p", egress_bps=egress_bps, held=True)
        for host, uuid, egress_bps in (("a", "1", 5.0), ("a", "2", math.inf), ("b", "1", 5.0))
    ]
    saved(one, other, moving)
    with begin() as tx:
        assert list(tx.servers(host="a")) == [one, other]
        assert list(tx.servers(uuids=["1", "3"])) == [one, moving]
        tx.save(changed(one, held=False))
        tx.remove_servers([one.name, other.name])
        assert list(tx.servers(host="a")) == []
        tx.add(one)
    with begin() as tx:
        assert list(tx.servers(uuids=["1", "2"])) == [one, moving]


def test_each_committed_transaction_grows_the_pool_generation(begin, counted, bump):
    seen = []
    for _ in range(3):
        with begin() as tx:
            seen.append(tx.shard.pool_generation)
            tx.save(bump(tx.batch(counted.uuid)))
    assert seen == [seen[0], seen[0] + 1, seen[0] + 2]


def test_a_thousand_jobs_are_saved_in_one_transaction(begin, make, saved):
    batch = make.batch(jobs=1000)
    saved(batch, *make.jobs(batch, 1000))
    with begin() as tx:
        for order, job in enumerate(tx.pending_jobs([batch.uuid])):
            tx.save(replace(job, state=JobState.WAITING_INPUT, slot="s", order=999 - order))
    with begin() as tx:
        assert [job.index for job in tx.active_jobs(slot="s")] == list(range(999, -1, -1))


def test_withheld_batches_are_not_pending_and_those_that_wait_for_others_are_found_with_these(begin, make, saved):
    first, done = make.batch(created_at=1.0), make.batch(created_at=2.0, state=BatchState.COMPLETED)
    gone, ended = str(uuid.uuid4()), make.batch(created_at=2.5, waits_for=(first.uuid,), state=BatchState.CANCELLED)
    late = make.batch(created_at=3.0, waits_for=(done.uuid, first.uuid, gone))
    held = make.batch(created_at=4.0, held=True)
    saved(first, done, ended, late, held, *(make.job(one) for one in (first, late, held)))
    with begin() as tx:
        assert list(tx.pending_batches()) == [first.uuid]
        states = {done.uuid: BatchState.COMPLETED, first.uuid: BatchState.PENDING, gone: None}
        assert tx.waiting_batches() == {late.uuid: states}
        assert tx.batch(late.uuid).waits_for == (done.uuid, first.uuid, gone)
        tx.save(replace(tx.batch(late.uuid), waits_for=()))
        tx.save(replace(tx.batch(held.uuid), held=False))
        assert list(tx.pending_batches()) == [first.uuid, late.uuid, held.uuid]
        assert tx.waiting_batches() == {}


def test_pending_batches_of_a_higher_priority_come_first_then_those_of_an_earlier_deadline(begin, make, saved):
    ranks = (-5, None), (0, None), (0, None), (0, 1.8e9), (0, 1.7e9), (9, None)
    batches = [
        make.batch(created_at=float(at), priority=priority, deadline_at=deadline_at)
        for at, (priority, deadline_at) in enumerate(ranks)
    ]
    saved(*batches, *map(make.job, batches))
    with begin() as tx:
        assert list(tx.pending_batches()) == [batches[place].uuid for place in (5, 4, 3, 1, 2, 0)]


def test_the_planned_end_of_a_batch_is_that_of_its_last_active_job(begin, make, saved):
    batch, active = make.batch(), {"dispatched_at": 100.0, "host": "h", "slot": "s"}
    jobs = [
        make.job(batch, state=JobState.RUNNING, end_s=5.0, **active),
        make.job(batch, state=JobState.WAITING_INPUT, end_s=7.0, **active),
        make.job(batch, state=JobState.COMPLETED, end_s=9.0, **active),
        make.job(batch),
    ]
    saved(batch, *jobs)
    with begin() as tx:
        assert tx.planned_end(batch.uuid) == 107.0
        tx.save(replace(tx.job(jobs[1].uuid), state=JobState.FAILED))
        assert tx.planned_end(batch.uuid) == 105.0
        assert tx.planned_end("another") is None
