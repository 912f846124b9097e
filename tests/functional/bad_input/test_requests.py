"""Documented behavior for bad requests and commands, tested with a real pool."""

import uuid

import pytest

from support.waiting import wait_until

from .table import CREATE, ROWS, TWICE, assert_refused, assert_said, call, create, fpga_pool, job, one_job

#: Requests that need no preparation.
REQUESTS = {
    "unknown function": (*CREATE, one_job(function="fft")),
    "negative size": (*CREATE, one_job(input_bytes=-1)),
    "absurd size": (*CREATE, one_job(input_bytes=2**40 + 1)),
    "size that is no whole number": (*CREATE, one_job(input_bytes=1.5)),
    "unknown requester": (*CREATE, one_job(requester="nobody")),
    "unknown policy": (*CREATE, {"json": {"policy": "best", "jobs": [job()]}}),
    "priority that is out of range": (*CREATE, {"json": {"priority": 101, "jobs": [job()]}}),
    "group below 0": (*CREATE, one_job(group=-1)),
    "groups for an online policy": (
        *CREATE,
        {"json": {"policy": "benefit_plus", "jobs": [job(), job(group=1)]}},
    ),
    "deadline that is over": (*CREATE, {"json": {"deadline_at": "2001-01-31T12:00:00Z", "jobs": [job()]}}),
    "wait for a batch that never was": (*CREATE, {"json": {"after": [str(uuid.UUID(int=1))], "jobs": [job()]}}),
    "batch of 0": (*CREATE, {"json": {"jobs": []}}),
    "task on more slots than a host has": (
        "POST",
        "/v1/tasks",
        {"json": {"function": "sha256", "topology": "line", "shares": [{"requester": "node-1", "input_bytes": 5}] * 5}},
    ),
    "batch of 100,000": (*CREATE, {"json": {"jobs": [job()] * 100_000}}),
    "unknown key": (*CREATE, one_job(inputbytes=5)),
    "missing key": (*CREATE, {"json": {"jobs": [{"function": "sha256", "input_bytes": 5}]}}),
    "body that is not JSON": (*CREATE, {"data": "{", "headers": {"Content-Type": "application/json"}}),
    "body of another type": (*CREATE, {"data": "jobs"}),
    "body of 40 MB": (*CREATE, {"data": b" " * 40_000_000, "headers": {"Content-Type": "application/json"}}),
    "one id twice in a batch": (*CREATE, {"json": {"jobs": [job(uuid=TWICE), job(uuid=TWICE)]}}),
    "batch that never was": ("GET", "/v1/batches/mine", {}),
    "project that is no name": (*CREATE, {**one_job(), "headers": {"X-Project-Id": "a b"}}),
    "slot that never was": ("GET", f"/v1/slots/{uuid.UUID(int=1)}", {}),
    "method that is not there": ("PUT", "/v1/batches", {}),
    "request under a foreign name": ("GET", "/v1/batches", {"headers": {"Host": "pool.example.org"}}),
}

#: Command lines; FILE is a small existing file.
COMMANDS = {
    "unknown function": "batch create --function fft --requester node-1 FILE",
    "unknown requester": "batch create --function sha256 --requester nobody FILE",
    "unknown policy": "batch create --function sha256 --requester node-1 --policy best FILE",
    "task on more slots than a host has": "task create --function sha256 --requester node-1 --topology line"
    + " FILE" * 5,
    "batch of 100,000": "batch create --function sha256 --requester node-1" + " FILE" * 100_000,
    "batch that never was": "batch show mine",
    "project that is no name": "--project a:b batch create --function sha256 --requester node-1 FILE",
    "slot that never was": "slot drain node-1/sim0/slot9",
    "file that cannot be read": "batch create --function sha256 --requester node-1 nowhere.bin",
    "input that its function cannot take": "batch create --function mvm --requester node-1 FILE",
}

#: Rows with a separate test, in this module or in others of this package.
OWN_TEST = {
    "no slot kind fits",
    "duplicate id of a batch",
    "duplicate id of a job",
    "another project's batch: show",
    "another project's batch: jobs",
    "another project's batch: cancel",
    "another project's batch: tickets",
    "cancel of a batch that ended",
    "altered bitstream",
    "token used twice",
    "token of another host",
    "altered token",
    "no token",
    "more bytes than announced",
    "stream that breaks off",
    "other bytes than the digest says",
    "broken catalogue: not TOML",
    "broken catalogue: unknown key",
    "broken catalogue: missing file",
    "full disk of the database",
}


def test_every_documented_row_is_tested():
    assert set(REQUESTS) | set(COMMANDS) | OWN_TEST == set(ROWS)


@pytest.mark.parametrize("row", REQUESTS)
def test_bad_requests_get_the_documented_answer_and_nothing_is_stored(pool, row):
    method, path, arguments = REQUESTS[row]
    assert_refused(row, call(pool, method, path, **arguments))
    assert call(pool, "GET", "/v1/batches").json()["batches"] == []


@pytest.mark.parametrize("row", COMMANDS)
def test_commands_tell_in_one_line_what_is_wrong(pool, row, tmp_path):
    (tmp_path / "FILE").write_bytes(b"abc")
    assert_said(row, fpga_pool(pool, *COMMANDS[row].split(), cwd=tmp_path))


def test_an_id_that_exists_is_refused_and_the_first_batch_stays(pool):
    batch, job_uuid = str(uuid.uuid4()), str(uuid.uuid4())
    wanted = {"uuid": batch, "jobs": [job(uuid=job_uuid)]}
    assert call(pool, *CREATE, project="doubles", json=wanted).status_code == 201
    assert_refused("duplicate id of a batch", call(pool, *CREATE, project="doubles", json={**wanted, "jobs": [job()]}))
    assert_refused("duplicate id of a job", call(pool, *CREATE, project="doubles", json={"jobs": wanted["jobs"]}))
    assert [found["uuid"] for found in call(pool, "GET", "/v1/batches", "doubles").json()["batches"]] == [batch]
    call(pool, "DELETE", f"/v1/batches/{batch}", "doubles")


def test_another_projects_batch_looks_as_if_it_did_not_exist(pool, tmp_path):
    path = f"/v1/batches/{create(pool, project='owner')}"
    ticket = {"job": TWICE, "purpose": "send", "source_address": "127.0.0.1", "source_port": 1}
    assert_refused("another project's batch: show", call(pool, "GET", path))
    assert_refused("another project's batch: jobs", call(pool, "GET", f"{path}/jobs"))
    assert_refused("another project's batch: cancel", call(pool, "DELETE", path))
    assert_refused(
        "another project's batch: tickets", call(pool, "POST", f"{path}/tickets", json={"tickets": [ticket]})
    )
    for verb in ("show", "cancel"):
        said = fpga_pool(pool, "--project", "thief", "batch", verb, path.rsplit("/", 1)[1], cwd=tmp_path)
        assert_said(f"another project's batch: {verb}", said)
    owned = call(pool, "GET", path, "owner").json()["batch"]
    assert (owned["state"], owned["cancel_requested"]) in (("PENDING", False), ("RUNNING", False))
    call(pool, "DELETE", path, "owner")


def test_a_batch_that_ended_is_not_cancelled_again(pool, tmp_path):
    path = f"/v1/batches/{create(pool, project='ended')}"
    assert call(pool, "DELETE", path, "ended").status_code == 202
    wait_until(lambda: call(pool, "GET", path, "ended").json()["batch"]["state"] == "CANCELLED", "it is cancelled")
    assert_refused("cancel of a batch that ended", call(pool, "DELETE", path, "ended"))
    said = fpga_pool(pool, "--project", "ended", "batch", "cancel", path.rsplit("/", 1)[1], cwd=tmp_path)
    assert_said("cancel of a batch that ended", said)
