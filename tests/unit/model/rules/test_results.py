"""Transfers of results: what the plan of a batch says about them, and what is stored."""

from dataclasses import replace

import pytest

from fpga_pool.model.objects.pool import JobState, RateSegment

#: Results are four times as large as inputs: 800 kB, which take 0.8 s at 8 Mbit/s.
INPUT_BYTES, RESULT_S = 200_000, 0.8


@pytest.fixture
def pool(new_pool, make_catalogue):
    pool = new_pool()
    entry = {
        "version": "1.0", "slot_kinds": ["small", "large"], "io_bps": 8e6, "preemptible": False, "source": "test",
        "cpu_time": {"a_s": 0, "b_s_per_byte": 1e-5}, "fpga_time": {"fast": {"a_s": 1.0, "b_s_per_byte": 1e-9}},
    }  # fmt: skip
    size = {"a_bytes": 0, "b_bytes_per_byte": 4}
    pool.catalogue = make_catalogue(
        {"grow": {**entry, "result_size": size}, "aes": entry}, slots=["small", "small", "large"], load_s=0.5
    )
    pool.host_up("tenant")
    pool.drain("tenant/c/r0")
    pool.drain("tenant/c/r1")
    pool.drain("tenant/c/r2")
    pool.settings = replace(pool.settings, plan_results=True)
    return pool


def about(begin_s, end_s):
    """Return a segment at the full rate of the links."""
    return RateSegment(pytest.approx(begin_s, abs=1e-9), pytest.approx(end_s), pytest.approx(8e6))


def test_results_leave_a_host_one_after_the_other_and_the_batch_is_promised_when_the_last_is_back(pool):
    batch = pool.create("grow", "grow", requester="tenant", input_bytes=INPUT_BYTES)
    first, second = sorted(pool.plan(), key=lambda job: job.end_s)
    assert first.result_transfer == (about(0.0, RESULT_S),)
    # The job that ends first sends first; the other one waits until that transfer ends.
    waits_s = first.end_s + RESULT_S - second.end_s
    assert second.result_transfer == (about(waits_s, waits_s + RESULT_S),)
    stored = pool.batch(batch)
    assert stored.planned_makespan_s == pytest.approx(second.end_s)
    assert stored.planned_completion_s == pytest.approx(first.end_s + 2 * RESULT_S)
    assert stored.lower_bound_s < stored.completion_bound_s <= stored.planned_completion_s


def test_the_agent_is_told_the_rates_of_the_result(pool):
    pool.create("grow", requester="tenant", input_bytes=INPUT_BYTES)
    (job,) = pool.plan()
    (command,) = pool.sent()
    assert command.action.result_transfer == job.result_transfer != ()


@pytest.mark.parametrize(
    ("function", "requester", "input_bytes", "plan_results"),
    [
        ("aes", "tenant", INPUT_BYTES, True),  # the catalogue does not give the size of its results
        ("grow", "tenant", 16 * 1024, True),  # 64 KiB are sent in one burst
        ("grow", "h0", INPUT_BYTES, True),  # the requester is the host of the slot
        ("grow", "tenant", INPUT_BYTES, False),  # disabled by the operator
    ],
)
def test_no_rates_are_planned_where_the_way_back_is_taken_to_be_free(
    pool, function, requester, input_bytes, plan_results
):
    pool.settings = replace(pool.settings, plan_results=plan_results)
    batch = pool.create(function, requester=requester, input_bytes=input_bytes)
    (job,) = pool.plan()
    assert job.result_transfer == ()
    stored = pool.batch(batch)
    assert stored.planned_completion_s == stored.planned_makespan_s


def test_a_job_that_loses_its_place_loses_the_rates_of_its_result(pool):
    pool.create("grow", requester="tenant", input_bytes=INPUT_BYTES)
    (job,) = pool.plan()
    pool.fail(job.uuid)
    assert pool.job(job.uuid).state is JobState.PENDING
    assert pool.job(job.uuid).result_transfer == ()


def test_jobs_planned_around_what_is_under_way_send_their_results_at_planned_rates_too(pool):
    pool.create(*["grow"] * 6, requester="tenant", input_bytes=INPUT_BYTES)
    pool.plan()
    later = pool.create("grow", requester="tenant", input_bytes=INPUT_BYTES)
    changes = pool.replan()
    (job,) = [job for job in changes.placed if job.batch_uuid == later]
    (piece,) = job.result_transfer
    assert piece.begin_s >= -1e-9
    assert piece.bps * (piece.end_s - piece.begin_s) / 8 == pytest.approx(4 * INPUT_BYTES)
    stored = pool.batch(later)
    assert stored.planned_completion_s == pytest.approx(job.end_s + piece.end_s)
