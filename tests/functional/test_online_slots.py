"""Slots of a pool with an online policy load, hold and exchange functions, and no job is lost or done twice."""

import time

import pytest

from fpga_pool.model.objects.pool import JobState, SlotState, is_cpu
from support.online import BYTES, CPU_S, POLICY, SLOT_S, SLOTS, Users, options, slots_of, write_catalogue
from support.waiting import wait_until

#: How long a slot keeps its function if a policy holds it, in seconds.
HOLD_S = 10.0


@pytest.fixture
def catalogue(tmp_path):
    return write_catalogue(tmp_path)


def test_where_all_work_is_online_slots_load_before_the_first_job_once_and_it_starts_at_once(
    make_pool, catalogue, end_and_audit_embedded, tmp_path
):
    pool = make_pool(options(catalogue, default_policy=POLICY))
    client = pool.client()
    wait_until(lambda: {slot.state for slot in slots_of(client)} == {SlotState.READY}, "all slots are loaded")
    functions = {slot.function for slot in slots_of(client)}
    # Without any requests, the most useful function is loaded.
    assert "sha256" in functions
    users = Users(client, tmp_path / "out")
    users.submit("sha256")
    users.wait()
    time.sleep(1.0)
    slots = slots_of(client)
    assert users.wrong() == []
    assert [slot.reconfigurations for slot in slots] == [1] * SLOTS
    (job,) = end_and_audit_embedded(pool)
    assert job.start_s == 0.0


@pytest.mark.long
@pytest.mark.parametrize("policy", ["benefit", "throughput"])
def test_an_idle_slot_that_holds_another_function_is_loaded_again_after_the_hold(
    make_pool, catalogue, end_and_audit_embedded, tmp_path, policy
):
    wanted = options(catalogue, online_policy=policy, online_patience_s=60.0)
    pool = make_pool(wanted | {f"policy_{policy}": {"hold_s": HOLD_S}})
    client = pool.client()
    users = Users(client, tmp_path / "out", policy)
    users.submit("wordcount", jobs=2 * SLOTS)
    users.wait()
    held = {slot.name: slot for slot in slots_of(client)}
    assert {slot.function for slot in held.values()} == {"wordcount"}
    users.submit("sha256")
    users.wait()
    assert users.wrong() == []
    (job,) = (job for job in end_and_audit_embedded(pool) if job.function == "sha256")
    held_until = held[job.slot].loaded_at + HOLD_S
    assert job.created_at < held_until
    assert job.dispatched_at >= held_until - 1e-3  # times are rounded to microseconds


def jobs_of(client, states=()):
    return [job for batch in client.batches() for job in client.jobs(batch.uuid, states=states)]


def all_slots_compute(client):
    return sum(not is_cpu(job.slot) for job in jobs_of(client, [JobState.RUNNING])) == SLOTS


def events_so_far(client):
    """Return the events of all jobs so far."""
    return {entry.event for job in jobs_of(client) for entry in client.events("jobs", job.uuid)}


@pytest.mark.long
def test_a_running_job_gives_its_slot_to_one_of_more_benefit_goes_on_elsewhere_and_is_done_once(
    make_pool, catalogue, end_and_audit_embedded, tmp_path
):
    pool = make_pool(options(catalogue))
    client = pool.client()
    users = Users(client, tmp_path / "out")
    # Both slots compute for 12 s, which takes 36 s on a CPU; a part is done when jobs of ten times the benefit arrive.
    users.submit("wordcount", SLOTS, size=30 * BYTES)
    wait_until(lambda: all_slots_compute(client), "all slots compute")
    time.sleep(2.0)
    users.submit("sha256", 2 * SLOTS)
    users.wait()
    assert users.wrong() == []
    jobs = end_and_audit_embedded(pool)
    assert len(jobs) == 3 * SLOTS
    evictions = dict.fromkeys((job.uuid for job in jobs if job.function == "wordcount"), 0)
    for job in jobs:
        # A job ended once, however often it was evicted. (The beginning of a long history is not kept.)
        history = [(entry.event, entry.before) for entry in job.history]
        events = [event for event, _ in history]
        left = history.count(("JobEvicted", JobState.RUNNING))
        print(f"{job.function}: left {left} places, ended on {job.slot} after {job.compute_s:.2f} s there")
        assert events.count("JobFinished") == 1
        assert job.attempt > left
        if job.uuid in evictions:
            evictions[job.uuid] = left
            # Its progress was kept: at its last place it computed for less time than the whole job takes.
            whole_s = 30 * (CPU_S["wordcount"] if is_cpu(job.slot) else SLOT_S)
            assert left == 0 or job.compute_s < whole_s
    assert any(evictions.values())


@pytest.mark.long
def test_an_agent_that_is_killed_amid_evictions_loses_nothing_and_doubles_nothing(
    deployment, rabbitmq, mariadb_url, catalogue, end_and_audit, tmp_path
):
    pool = deployment(rabbitmq.url, mariadb_url, agents=1, options=options(catalogue))
    client = pool.client()
    users = Users(client, tmp_path / "out")
    # Each takes 6 s on a slot, unless jobs of more benefit arrive.
    users.submit("bytecount", 6, size=15 * BYTES)
    wait_until(lambda: all_slots_compute(client), "all slots compute")
    users.submit("sha256", 6)
    wait_until(lambda: "JobEvicted" in events_so_far(client), "a job has left its place")
    pool.kill("node-1")
    users.submit("wordcount", 3)
    pool.restart("node-1")
    users.wait()
    assert users.wrong() == []
    jobs = end_and_audit(pool, mariadb_url)
    assert len(jobs) == 15
    events = [entry.event for job in jobs for entry in job.history]
    print(
        {event: events.count(event) for event in sorted(set(events))},
        [(job.function, job.slot, job.attempt) for job in jobs],
    )
