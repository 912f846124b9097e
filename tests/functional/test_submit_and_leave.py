"""Client processes that end before their batch does: they are killed, leave, or hold it."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from support.waiting import wait_until

FILES, FILE_BYTES, WAIT_S = 8, 1_000_000, 120.0


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"input-{number}" for number in range(FILES)]
    for path in paths:
        path.write_bytes(os.urandom(FILE_BYTES))
    return paths


@pytest.fixture
def slow_pool(make_pool):
    """A pool in which each input takes 0.2 s over the egress of its requester."""
    return make_pool({"standalone": {"egress_mbps": 40}})


def command(pool, *argv):
    return [sys.executable, "-m", "fpga_pool.cli.client.main", "--endpoint", pool.endpoint, *map(str, argv)]


def rows(pool, *argv):
    done = subprocess.run(
        command(pool, *argv, "-f", "json"), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def digests(paths):
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


@pytest.mark.long
def test_a_killed_client_continues_where_it_stopped(make_pool, files, tmp_path):
    out = tmp_path / "out"
    work = ("--function", "sha256", "--requester", "requester-1")
    # Each input takes a second, so the kill precedes the arrival of the last one, even if it is late.
    pool = make_pool({"standalone": {"egress_mbps": 8}})
    create = subprocess.Popen(command(pool, "batch", "create", *work, "--output-dir", out, *files))
    try:
        wait_until(lambda: out.is_dir() and any(out.glob("input-*")), "a result of the client", WAIT_S)
    finally:
        create.kill()
        create.wait(WAIT_S)
    fetched = {path: path.stat().st_ino for path in out.glob("input-*")}
    assert len(fetched) < FILES
    (batch,) = pool.client().batches()
    attached = rows(pool, "batch", "attach", batch.uuid, "--output-dir", out, "--files", *files)
    assert [row["result"] for row in attached] == digests(files)
    assert {path: path.stat().st_ino for path in fetched} == fetched


def test_a_client_leaves_and_another_one_fetches(slow_pool, files, tmp_path):
    work = ("--function", "sha256", "--requester", "requester-1")
    (created,) = rows(slow_pool, "batch", "create", "--no-wait", *work, *files)
    for path in files:
        path.rename(path.with_suffix(".moved"))  # the input files are no longer needed
    attached = rows(slow_pool, "batch", "attach", created["uuid"], "--output-dir", tmp_path / "elsewhere")
    assert [row["result"] for row in attached] == digests(path.with_suffix(".moved") for path in files)


@pytest.mark.long
def test_a_batch_that_is_held_back_gets_no_slot_before_its_release(slow_pool, files, tmp_path):
    work = ("--function", "sha256", "--requester", "requester-1")
    (held,) = rows(slow_pool, "batch", "create", "--hold", *work, *files)
    rows(slow_pool, "batch", "create", *work, files[0])  # it is planned, and ends
    client = slow_pool.client()
    assert {(job.state, job.slot, job.reason) for job in client.jobs(held["uuid"])} == {
        ("PENDING", "", "held by its owner")
    }
    assert client.batch_detail(held["uuid"]).pending_reason == "held by its owner"
    rows(slow_pool, "batch", "release", held["uuid"])
    wait_until(lambda: all(job.slot for job in client.jobs(held["uuid"])), "places of the released jobs", WAIT_S)
    # Held again, its jobs release their slots, as no file has arrived.
    rows(slow_pool, "batch", "hold", held["uuid"])
    assert {job.state for job in client.jobs(held["uuid"])} == {"PENDING"}
    rows(slow_pool, "batch", "release", held["uuid"])
    attached = rows(slow_pool, "batch", "attach", held["uuid"], "--output-dir", tmp_path / "out", "--files", *files)
    assert [row["result"] for row in attached] == digests(files)


@pytest.mark.long
def test_a_batch_runs_after_another_one_and_not_after_one_that_was_cancelled(slow_pool, files):
    work = ("--function", "sha256", "--requester", "requester-1")
    (first,) = rows(slow_pool, "batch", "create", "--no-wait", *work, *files)
    done = rows(slow_pool, "batch", "create", *work, "--after", first["uuid"], *files)
    assert [row["result"] for row in done] == digests(files)
    client = slow_pool.client()
    second, before = client.batches()
    assert before.ended_at <= min(job.started_at for job in client.jobs(second.uuid))
    (held,) = rows(slow_pool, "batch", "create", "--hold", *work, *files)
    (last,) = rows(slow_pool, "batch", "create", "--hold", "--after", held["uuid"], *work, *files)
    rows(slow_pool, "batch", "cancel", held["uuid"])
    wait_until(lambda: client.batch(last["uuid"]).state == "CANCELLED", "the end of the batch that waited", WAIT_S)
    reasons = {job.reason for job in client.jobs(last["uuid"])}
    assert reasons == {f"not computed: batch {held['uuid']} was cancelled"}
