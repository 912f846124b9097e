"""Queries of the API to the store that are not reads of a transaction."""

import itertools
from dataclasses import replace

import pytest

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.gangs import GangState
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import Batch, Job, JobState, Slot
from fpga_pool.store.statements import jobs_of_batch


def of_a(**wanted):
    return Page(project_id="project-a", descending=True, **wanted)


def test_batches_are_paged_newest_first_within_a_project(store, make, saved):
    batches = saved(*(make.batch(created_at=float(age)) for age in range(5)), make.batch(project_id="project-b"))
    newest = list(reversed(batches[:5]))
    with store.reading() as tx:
        assert tx.page(Batch, of_a()) == newest
        assert tx.page(Batch, of_a(limit=2)) == newest[:2]
        assert tx.page(Batch, of_a(limit=2, marker=newest[1].uuid)) == newest[2:4]
        assert tx.page(Batch, Page(project_id="project-a", marker=newest[1].uuid)) == [newest[0]]
        assert tx.page(Batch, of_a(since=3.0)) == newest[:2]
        assert len(tx.batches()) == 6


@pytest.mark.parametrize("descending", [False, True])
def test_batches_of_the_same_moment_are_each_on_exactly_one_page(store, make, saved, descending):
    batches = saved(*(make.batch(created_at=7.0) for _ in range(5)))
    seen, marker = [], None
    with store.reading() as tx:
        while page := tx.page(Batch, Page(limit=2, marker=marker, descending=descending)):
            seen += page
            marker = page[-1].uuid
    assert sorted(batch.uuid for batch in seen) == sorted(batch.uuid for batch in batches)


def test_a_marker_of_another_project_is_not_known(store, make, saved):
    foreign = saved(make.batch(project_id="project-b"))
    with store.reading() as tx, pytest.raises(InvalidInput, match=f"marker: no batch {foreign.uuid}"):
        tx.page(Batch, of_a(marker=foreign.uuid))


def test_a_field_that_objects_do_not_have_is_refused(store):
    with store.reading() as tx, pytest.raises(InvalidInput, match="a batch has no field 'colour'"):
        tx.page(Batch, Page(where={"colour": ("red",)}))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("project", ["project-a", None])
@pytest.mark.parametrize("field", ["state", "host", "batch_uuid"])
def test_pages_of_several_values_have_each_job_once_and_in_order(store, make, saved, descending, project, field):
    batches = [make.batch() for _ in range(3)]
    jobs = [
        make.job(
            batches[i % 3], index=i, state=state, host=f"h{i % 3}", created_at=i // 4.0, project_id=f"project-{one}"
        )
        for i, (state, one) in enumerate(itertools.product([*JobState] * 2, "ab"))
    ]
    saved(*batches, *jobs)
    values = {
        "state": ("RUNNING", "FAILED", "PENDING"),
        "host": ("h0", "h2"),
        "batch_uuid": tuple(batch.uuid for batch in batches[1:]),
    }[field]
    seen, marker = [], None
    with store.reading() as tx:
        while page := tx.page(
            Job, Page(project_id=project, where={field: values}, marker=marker, limit=2, descending=descending)
        ):
            seen += page
            marker = page[-1].uuid
    wanted = [job for job in jobs if getattr(job, field) in values and project in (None, job.project_id)]
    wanted.sort(key=lambda job: (job.created_at, job.uuid), reverse=descending)
    assert [job.uuid for job in seen] == [job.uuid for job in wanted]


def test_jobs_are_filtered_by_several_fields(store, make, saved):
    batch = make.batch()
    jobs = [
        make.job(batch, index=index, state=state, function=function, created_at=float(index))
        for index, (state, function) in enumerate(itertools.product(JobState, ("aes", "sha256")))
    ]
    saved(batch, *jobs)
    wanted = {"state": ("FAILED", "RUNNING"), "function": ("aes",)}
    with store.reading() as tx:
        found = tx.page(Job, of_a(where=wanted))
    assert [(job.state, job.function) for job in found] == [(JobState.FAILED, "aes"), (JobState.RUNNING, "aes")]


def test_batches_are_those_that_have_a_job_of_a_function_on_a_host(store, make, saved):
    batches = [make.batch(name=str(number)) for number in range(3)]
    saved(
        *batches,
        *(make.job(one, function=f, host=h) for one, f, h in zip(batches, "aab", ["x", "y", "x"], strict=True)),
    )

    def names(**where):
        with store.reading() as tx:
            page = Page(project_id="project-a", where=where, limit=10)
            return sorted(batch.name for batch in tx.page(Batch, page))

    assert names(function=("a",)) == ["0", "1"]
    assert names(host=("x",)) == ["0", "2"]
    assert names(function=("a", "b"), host=("x",)) == ["0", "2"]
    assert names(function=("b",), host=("y",)) == []


def test_slots_are_paged_by_name(store, make, saved):
    _, *slots = saved(make.host(), *(make.slot(region=f"r{number}") for number in range(3)))
    with store.reading() as tx:
        assert tx.page(Slot, Page(limit=2)) == slots[:2]
        assert tx.page(Slot, Page(marker=slots[1].name)) == slots[2:]
        assert tx.page(Slot, Page(where={"host": ("elsewhere",)})) == []


def test_the_jobs_of_a_batch_can_be_asked_for_by_state(store, make, saved):
    batch = make.batch()
    saved(batch, *(make.job(batch, index=i, state=state) for i, state in enumerate(JobState)))
    with store.reading() as tx:
        found = tx.batch_job_summaries(batch.uuid, states={JobState.FAILED, JobState.PENDING})
    assert [job.state for job in found] == [JobState.PENDING, JobState.FAILED]


def test_jobs_that_are_told_have_no_history_and_those_that_are_changed_keep_theirs(store, begin, make, saved):
    batch = make.batch()
    job = make.job(batch, history=(HistoryEntry(1.0, "Planned", "PENDING", "WAITING_INPUT"),))
    saved(batch, job)
    with store.reading() as tx:
        assert list(tx.batch_job_summaries(batch.uuid)) == list(tx.job_summaries({job.uuid, "nobody"}).values())
        assert tx.job_summaries({job.uuid})[job.uuid] == replace(job, history=())
    with begin() as tx:
        assert tx.job_summaries({job.uuid})[job.uuid].history == ()
        assert tx.job(job.uuid).history == job.history


def test_a_slot_is_found_by_its_uuid(store, make, saved):
    _, slot = saved(make.host(), make.slot())
    with store.reading() as tx:
        assert tx.slot_by_uuid(slot.uuid) == slot
        with pytest.raises(NotFound, match="no slot 0000"):
            tx.slot_by_uuid("0000")


@pytest.mark.parametrize("work", ["pending", "running", "gang", "task", "command"])
def test_a_shard_has_open_work_until_everything_has_ended(store, begin, make, saved, work):
    batch, ended = make.batch(jobs=2), make.batch()
    saved(batch, ended, make.job(ended, state=JobState.COMPLETED), make.gang(state=GangState.COMPLETED))

    def has_open_work(shard):
        with store.reading(shard) as tx:
            return tx.has_open_work()

    shard = make.gang().shard
    assert not has_open_work(shard)
    match work:
        case "pending":
            saved(make.job(batch))
        case "running":
            saved(make.job(batch, state=JobState.RUNNING))
        case "gang":
            saved(make.gang())
        case "task":
            saved(make.task(batch))
        case "command":
            with begin() as tx:
                tx.send(make.command())
    assert has_open_work(shard)
    assert not has_open_work("another")


def test_a_run_is_the_last_one_by_its_end(store, begin, make, saved):
    batch = make.batch(jobs=2)
    jobs = make.jobs(batch, 2)
    saved(batch, *jobs)
    with store.reading() as tx:
        assert tx.last_run_at() is None
    with begin() as tx:
        tx.record_run(make.run(jobs[0], finished_at=3.0))
        tx.record_run(make.run(jobs[1], function="sha256", finished_at=2.0))
    with store.reading() as tx:
        assert tx.last_run_at() == 3.0


def test_the_newest_runs_of_a_function_come_by_board(store, begin, make, saved):
    batch = make.batch()
    jobs = make.jobs(batch, 5)
    saved(batch, *jobs)
    boards = ["vc709", "u250", "vc709", "vc709"]
    with begin() as tx:
        for i, board in enumerate(boards):
            tx.record_run(make.run(jobs[i], board=board, input_bytes=i, compute_s=i / 2, finished_at=float(i)))
        tx.record_run(make.run(jobs[4], function="sha256"))
    with store.reading() as tx:
        runs = tx.runs("aes", newest=2)
    found = {board: (of.input_bytes.tolist(), of.seconds.tolist(), of.ended_at.tolist()) for board, of in runs.items()}
    assert found == {"u250": ([1], [0.5], [1.0]), "vc709": ([3, 2], [1.5, 1.0], [3.0, 2.0])}


def test_a_refitted_time_model_replaces_the_one_before(store):
    store.save_time_model("aes", "vc709", TimeModel(1.0, 2e-9), samples=3, now_s=10.0)
    store.save_time_model("aes", "vc709", TimeModel(0.5, 1e-9), samples=4, now_s=11.0)
    store.save_time_model("aes", "u250", TimeModel(0.25, 3e-9), samples=4, now_s=11.0)
    with store.reading() as tx:
        assert tx.time_models() == {("aes", "vc709"): TimeModel(0.5, 1e-9), ("aes", "u250"): TimeModel(0.25, 3e-9)}


def test_a_reader_sees_one_moment_and_delays_no_writer(store, begin, counted, bump, shard):
    with store.reading(shard.name) as reader:
        before = reader.shard.pool_generation
        with begin() as tx:
            tx.save(bump(tx.batch(counted.uuid)))
        assert reader.batch(counted.uuid).jobs_completed == 0
    with store.reading(shard.name) as reader:
        assert reader.batch(counted.uuid).jobs_completed == 1
        assert reader.shard.pool_generation == before + 1


@pytest.mark.parametrize("write", ["add", "save", "send", "drop_commands", "record_run"])
def test_a_reader_cannot_write(store, counted, write):
    with store.reading() as tx, pytest.raises(TypeError, match="is read-only"):
        getattr(tx, write)(counted)


def test_changed_jobs_are_those_of_the_batch_since_the_generations_that_were_seen(store, shard, begin, saved, make):
    batch, first, second = saved(*(batch := make.batch(jobs=2), *make.jobs(batch, 2)))
    everything, seen = store.changed_jobs(batch.uuid)
    assert [job.uuid for job in everything] == [first.uuid, second.uuid]
    with begin() as tx:
        tx.save(replace(tx.job(second.uuid), order=1))
    changed, later = store.changed_jobs(batch.uuid, changed_after=seen)
    assert [job.uuid for job in changed] == [second.uuid]
    assert later == {shard.name: seen[shard.name] + 1}
    assert store.changed_jobs(batch.uuid, changed_after=later) == ([], later)


def test_what_was_seen_of_shards_that_do_not_exist_costs_no_statement_of_its_own(store, saved, make):
    batch, *_ = saved(*(batch := make.batch(jobs=2), *make.jobs(batch, 2)))
    _, seen = store.changed_jobs(batch.uuid)
    kept = jobs_of_batch.cache_info().currsize
    for others in (1, 30, 1500):  # more than one statement of SQLite can have
        claimed = seen | {f"none-{number}": 0 for number in range(others)}
        assert store.changed_jobs(batch.uuid, changed_after=claimed) == ([], seen)
    assert jobs_of_batch.cache_info().currsize <= kept + 1
