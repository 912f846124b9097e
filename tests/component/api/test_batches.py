import base64
import json
import logging
import uuid
from dataclasses import fields

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.model.messages.requests import Ticket

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 1000}


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


@pytest.fixture
def created(api):
    return api.post("/v1/batches", json={"name": "first", "jobs": [JOB, {**JOB, "name": "b.bin"}]}).json["batch"]


def test_create_answers_with_the_batch_and_where_it_is(api):
    answer = api.post("/v1/batches", json={"jobs": [JOB]})
    assert answer.status_code == 201
    batch = answer.json["batch"]
    assert answer.headers["Location"].endswith(f"/v1/batches/{batch['uuid']}")
    assert (batch["jobs"], batch["project_id"], batch["user_id"]) == (1, "demo", "demo")
    assert "history" not in batch


def test_create_keeps_the_ids_of_the_client(api):
    batch, job = str(uuid.uuid4()), str(uuid.uuid4())
    api.post("/v1/batches", json={"uuid": batch.upper(), "jobs": [{**JOB, "uuid": job}]})
    assert api.get(f"/v1/batches/{batch}/jobs").json["jobs"][0]["uuid"] == job


def test_the_group_of_a_job_is_stored_and_shown(api):
    created = api.post("/v1/batches", json={"jobs": [{**JOB, "group": 2}, JOB]}).json["batch"]
    jobs = api.get(f"/v1/batches/{created['uuid']}/jobs").json["jobs"]
    assert [job["group"] for job in jobs] == [2, 0]
    assert api.get(f"/v1/jobs/{jobs[0]['uuid']}").json["job"]["group"] == 2


def bad(**changes):
    return {"jobs": [{**JOB, **changes}]}


BAD_INPUT = [
    ("no object", [], "body"),
    ("no jobs", {}, "jobs"),
    ("batch of 0", {"jobs": []}, "jobs: a batch needs at least one job"),
    ("job is no object", {"jobs": [7]}, "jobs[0]"),
    ("unknown function", bad(function="sha3"), "jobs[0].function: 'sha3' is not in the catalogue"),
    ("unknown requester", bad(requester="elsewhere"), "jobs[0].requester: no host 'elsewhere'"),
    ("negative size", bad(input_bytes=-1), "jobs[0].input_bytes: expected 0 to"),
    ("absurd size", bad(input_bytes=10**30), "jobs[0].input_bytes: expected 0 to"),
    ("size with a fraction", bad(input_bytes=1.5), "jobs[0].input_bytes: expected a number of bytes"),
    ("size as text", bad(input_bytes="1000"), "jobs[0].input_bytes"),
    ("size true", bad(input_bytes=True), "jobs[0].input_bytes"),
    ("size missing", {"jobs": [{"function": "sha256", "requester": "node-1"}]}, "jobs[0]: missing: input_bytes"),
    ("group below 0", bad(group=-1), "jobs[0].group: expected 0 to 2147483647, found -1"),
    ("group with a fraction", bad(group=0.5), "jobs[0].group: expected a whole number from 0 on, found 0.5"),
    ("unknown field", bad(priority=9), "jobs[0]: unknown: ['priority']"),
    ("broken uuid", bad(uuid="1"), "jobs[0].uuid: expected a uuid"),
    ("uuid and a newline", bad(uuid=f"{uuid.uuid4()}\n"), "jobs[0].uuid: expected a uuid"),
    ("control character", bad(name="a\x00b"), "jobs[0].name"),
    ("half a surrogate pair", bad(name="\ud800"), "jobs[0].name"),
    ("long name", {"name": "x" * 256, **bad()}, "name: expected at most 255 characters"),
    ("same job twice", {"jobs": [{**JOB, "uuid": str(uuid.UUID(int=1))}] * 2}, "jobs[1].uuid"),
]


@pytest.mark.parametrize(("document", "says"), [row[1:] for row in BAD_INPUT], ids=[row[0] for row in BAD_INPUT])
def test_create_refuses(api, document, says):
    answer = api.post("/v1/batches", json=document)
    assert answer.status_code == 400
    assert says in answer.json["errors"][0]["detail"]
    assert api.get("/v1/batches").json["batches"] == []


def test_create_refuses_a_batch_of_100_000_by_its_number(api):
    answer = api.post("/v1/batches", json={"jobs": [JOB] * 100_000})
    assert answer.status_code == 400
    assert "100000 jobs in one batch, at most 10000 are accepted" in answer.json["errors"][0]["detail"]


def test_create_refuses_an_id_that_exists(api, created):
    answer = api.post("/v1/batches", json={"uuid": created["uuid"], "jobs": [JOB]})
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (409, "fpga_pool.duplicate_id")


@pytest.mark.parametrize("text", ["{", "", "nonsense", "[" * 100_000])
def test_create_refuses_what_is_no_json(api, text):
    answer = api.post("/v1/batches", data=text, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json["errors"][0]["detail"].startswith("body:")


def test_create_refuses_another_content_type(api):
    answer = api.post("/v1/batches", data=json.dumps({"jobs": [JOB]}), content_type="text/plain")
    assert answer.status_code == 415


def test_create_refuses_a_body_that_is_too_large(pool):
    api = create_app(pool, max_body_bytes=1000).test_client()
    answer = api.post("/v1/batches", json={"name": "x" * 1000, "jobs": [JOB]})
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (413, "fpga_pool.too_large")


def test_list_goes_page_by_page_newest_first(api):
    made = [api.post("/v1/batches", json={"jobs": [JOB]}).json["batch"]["uuid"] for _ in range(5)]
    seen, href = [], "/v1/batches?limit=2"
    while href:
        page = api.get(href).json
        seen += [batch["uuid"] for batch in page["batches"]]
        href = page["links"][0]["href"] if page["links"] else None
    assert seen == made[::-1]


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=1001", "limit=x", "limit=", "marker=x"])
def test_list_refuses(api, query):
    assert api.get(f"/v1/batches?{query}").status_code == 400


def test_show_tells_the_history_and_dates_in_utc(api, created):
    batch = api.get(f"/v1/batches/{created['uuid']}").json["batch"]
    assert batch["name"] == "first"
    assert batch["created_at"].endswith("+00:00")
    (created,) = batch["history"]
    assert (created["event"], created["at"], created["after"]) == ("Created", batch["created_at"], "PENDING")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("key", [str(uuid.UUID(int=7)), "x", "a" * 500])
def test_unknown_batch_is_not_found(api, method, key):
    assert api.open(f"/v1/batches/{key}", method=method).status_code == 404


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("DELETE", ""), ("GET", "/jobs")])
def test_batch_of_another_project_looks_as_if_it_did_not_exist(api, created, method, rest):
    answer = api.open(f"/v1/batches/{created['uuid']}{rest}", method=method, headers={"X-Project-Id": "other"})
    assert answer.status_code == 404
    assert api.get("/v1/batches", headers={"X-Project-Id": "other"}).json["batches"] == []


def test_cancel_is_accepted(api, created):
    answer = api.delete(f"/v1/batches/{created['uuid']}")
    assert answer.status_code == 202
    assert answer.json["batch"]["cancel_requested"] is True


def test_jobs_tell_plan_and_place(api, created):
    first, second = api.get(f"/v1/batches/{created['uuid']}/jobs").json["jobs"]
    assert (first["host"], first["slot"], first["attempt"]) == ("node-1", "node-1/card-0/r0", 1)
    assert (first["start_s"], first["end_s"], first["transfer"]) == (0.0, 1.0, [])
    assert second["name"] == "b.bin"
    assert "history" not in first


def test_jobs_are_filtered_by_state(api, created):
    path = f"/v1/batches/{created['uuid']}/jobs"
    assert len(api.get(f"{path}?state=waiting_input").json["jobs"]) == 2
    assert api.get(f"{path}?state=COMPLETED").json["jobs"] == []
    assert api.get(f"{path}?state=LOST").status_code == 400


def test_jobs_that_changed_after_what_was_seen_are_told(api, created, pool):
    path = f"/v1/batches/{created['uuid']}/jobs"
    before = api.get(f"{path}?changed_after=").json
    assert len(before["jobs"]) == 2
    assert api.get(f"{path}?changed_after={before['seen']}").json["jobs"] == []
    pool.displace(before["jobs"][1]["uuid"])
    after = api.get(f"{path}?changed_after={before['seen']}&wait_s=5").json
    assert [job["index"] for job in after["jobs"]] == [1]
    assert after["seen"] != before["seen"]


def seen_at(generation, *shards):
    seen = dict.fromkeys(shards or ["default"], generation)
    return base64.urlsafe_b64encode(json.dumps(seen).encode()).decode()


@pytest.mark.parametrize(
    "query",
    [
        "changed_after=x",
        "changed_after=WzFd",
        f"changed_after={seen_at(2**63)}",
        f"changed_after={seen_at(-1)}",
        f"changed_after={seen_at(1, chr(0xD800))}",
        f"changed_after={seen_at(1, 'x' * 256)}",
        f"changed_after={seen_at(1, *map(str, range(1001)))}",
        "wait_s=x",
        "wait_s=-1",
        "wait_s=nan",
        "wait_s=60",
    ],
)
def test_jobs_refuse(api, created, query):
    answer = api.get(f"/v1/batches/{created['uuid']}/jobs?{query}")
    assert (answer.status_code, query.split("=")[0] in answer.json["errors"][0]["detail"]) == (400, True)


def ticket_for(job):
    return {"job": job, "purpose": "send", "source_address": "127.0.0.1", "source_port": 40000}


@pytest.mark.parametrize("address", ["999.999.999.999", "ffff", "::::::"])
def test_a_ticket_is_for_a_source_with_an_address(api, created, address):
    job = api.get(f"/v1/batches/{created['uuid']}/jobs").json["jobs"][0]["uuid"]
    wanted = {"tickets": [ticket_for(job) | {"source_address": address}]}
    answer = api.post(f"/v1/batches/{created['uuid']}/tickets", json=wanted)
    assert (answer.status_code, "source_address" in answer.json["errors"][0]["detail"]) == (400, True)


def test_tickets_are_never_cached_nor_logged(api, created, caplog):
    caplog.set_level(logging.DEBUG)
    job = api.get(f"/v1/batches/{created['uuid']}/jobs").json["jobs"][0]["uuid"]
    answer = api.post(f"/v1/batches/{created['uuid']}/tickets", json={"tickets": [ticket_for(job)]})
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    (ticket,) = answer.json["tickets"]
    assert (ticket["address"], ticket["port"], ticket["input_bytes"]) == ("127.0.0.1", 9, 1000)
    assert set(ticket) == {field.name for field in fields(Ticket)}
    assert ticket["token"]
    assert ticket["token"] not in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"job": "x"},
        {"purpose": "steal"},
        {"source_port": 0},
        {"source_port": 65536},
        {"source_address": "localhost; rm"},
        {"source_address": ""},
        {"more": 1},
    ],
)
def test_tickets_refuse(api, created, changes):
    wanted = {**ticket_for(str(uuid.UUID(int=1))), **changes}
    answer = api.post(f"/v1/batches/{created['uuid']}/tickets", json={"tickets": [wanted]})
    assert answer.status_code == 400
    assert "tickets[0]" in answer.json["errors"][0]["detail"]


def test_no_tickets_at_all_is_refused(api, created):
    assert api.post(f"/v1/batches/{created['uuid']}/tickets", json={"tickets": []}).status_code == 400
