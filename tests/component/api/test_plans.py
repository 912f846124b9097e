"""Dry runs over the REST API, planned by the real policies."""

import pytest
from oslo_config import cfg

from fpga_pool.api.app import create_app
from fpga_pool.api.policies import make_enforcer
from fpga_pool.model.exceptions import QuotaExceeded, TooManyRequests

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 1000}


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_a_plan_says_when_where_and_how_good_and_stores_nothing(api, pool):
    answer = api.post("/v1/plans", json={"jobs": [JOB, JOB | {"name": "b.bin"}, JOB]})
    assert answer.status_code == 200
    assert "Location" not in answer.headers
    plan = answer.json["plan"]
    assert (plan["policy"], plan["jobs"], plan["input_bytes"]) == ("ect", 3, 3000)
    first, second, third = plan["job_list"]
    # There are two slots: two jobs compute concurrently, and the third follows one of them.
    assert {first["slot"], second["slot"]} == {"node-1/card-0/r0", "node-2/card-0/r0"}
    assert {one["slot"].split("/")[0] for one in plan["job_list"]} == {one["host"] for one in plan["job_list"]}
    assert second["name"] == "b.bin"
    assert plan["planned_makespan_s"] == max(one["end_s"] for one in plan["job_list"])
    assert third["start_s"] >= min(first["end_s"], second["end_s"])
    assert 0 < plan["lower_bound_s"] <= plan["planned_makespan_s"]
    assert plan["ends_at"].endswith("+00:00")
    assert api.get("/v1/batches").json["batches"] == api.get("/v1/jobs").json["jobs"] == []
    assert pool.tx.leases() == []


def test_a_plan_shows_nothing_of_another_project(api):
    api.post("/v1/batches", json={"name": "secret", "jobs": [JOB | {"name": "secret"}]})
    answer = api.post("/v1/plans", json={"jobs": [JOB]}, headers={"X-Project-Id": "other"})
    assert len(answer.json["plan"]["job_list"]) == 1
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"jobs": []},
        {"jobs": [JOB | {"function": "sha3"}]},
        {"jobs": [JOB | {"requester": "elsewhere"}]},
        {"jobs": [JOB | {"more": 1}]},
        {"jobs": [JOB] * 10_001},
        {},
        [],
    ],
)
def test_a_plan_is_refused_as_the_creation_is(api, body):
    planned, created = (api.post(path, json=body) for path in ("/v1/plans", "/v1/batches"))
    assert planned.status_code == created.status_code == 400
    assert planned.json["errors"][0]["detail"] == created.json["errors"][0]["detail"]


def test_a_plan_beyond_the_quota_is_forbidden(api, pool):
    pool.breaks["plan_batch"] = [QuotaExceeded("jobs: 1 requested, 3 of 3 used")]
    answer = api.post("/v1/plans", json={"jobs": [JOB]})
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (403, "fpga_pool.quota_exceeded")


SHARE = {"requester": "node-1", "input_bytes": 1000}
OTHERS = {
    "tasks": {"function": "sha256", "shares": [SHARE]},
    "gangs": {"processes": 2, "runtime_s": 60, "cpu_usage": 0.5},
    "pipelines": {"subtasks": [JOB | {"name": "a"}, {"name": "b", "function": "sha256", "after": ["a"]}]},
}


@pytest.mark.parametrize(
    ("nouns", "parts", "field"),
    [("tasks", "share_list", "slot"), ("gangs", "process_list", "processor"), ("pipelines", "subtask_list", "slot")],
)
def test_plans_of_all_kinds_say_where_and_when_and_store_nothing(api, pool, nouns, parts, field):
    answer = api.post(f"/v1/plans/{nouns}", json=OTHERS[nouns] | {"name": "n"})
    assert answer.status_code == 200, answer.text
    plan = answer.json["plan"]
    assert all(part["host"].startswith("node-") and part[field].startswith(part["host"]) for part in plan[parts])
    assert plan["pending_reason"] == ""
    assert plan["lower_bound_s"] > 0
    assert plan["expected_at"] < plan["ends_at"]
    assert api.get(f"/v1/{nouns}").json[nouns] == api.get("/v1/jobs").json["jobs"] == []
    assert pool.tx.leases() == []


@pytest.mark.parametrize(
    ("nouns", "change"),
    [
        ("tasks", {"shares": []}),
        ("tasks", {"shares": [SHARE] * 2}),  # no host has two slots
        ("tasks", {"function": "sha3"}),
        ("tasks", {"more": 1}),
        ("gangs", {"processes": 1000}),
        ("gangs", {"cpu_usage": 2}),
        ("pipelines", {"subtasks": [JOB | {"name": "a", "function": "sha3"}]}),
        ("pipelines", {"subtasks": [{"name": "b", "function": "sha256", "after": ["a"]}]}),
    ],
)
def test_plans_of_all_kinds_are_refused_as_the_creation_is(api, nouns, change):
    planned, created = (api.post(path, json=OTHERS[nouns] | change) for path in (f"/v1/plans/{nouns}", f"/v1/{nouns}"))
    assert planned.status_code == created.status_code == 400
    assert planned.json["errors"][0]["detail"] == created.json["errors"][0]["detail"]


def test_one_dry_run_too_many_is_429(api, pool):
    pool.breaks["plan_batch"] = [TooManyRequests("another dry run is being planned")]
    answer = api.post("/v1/plans", json={"jobs": [JOB]})
    assert (answer.status_code, answer.json["errors"][0]["code"]) == (429, "fpga_pool.too_many_requests")


@pytest.mark.parametrize(
    ("noun", "path", "body"),
    [
        ("batch", "/v1/plans", {"jobs": [JOB]}),
        *((nouns.removesuffix("s"), f"/v1/plans/{nouns}", body) for nouns, body in OTHERS.items()),
    ],
)
def test_a_policy_file_that_forbids_to_create_things_forbids_to_plan_them(pool, tmp_path, noun, path, body):
    (tmp_path / "policy.yaml").write_text(f'"fpga_pool:create_{noun}": "role:submitter"\n')
    (tmp_path / "api.conf").write_text(f"[oslo_policy]\npolicy_file = {tmp_path}/policy.yaml\n")
    conf = cfg.ConfigOpts()
    conf([f"--config-file={tmp_path}/api.conf"], project="fpga_pool")
    api = create_app(pool, enforcer=make_enforcer(conf)).test_client()
    for roles, status in (("member", 403), ("submitter", 200)):
        answer = api.post(path, json=body, headers={"X-Roles": roles})
        assert (roles, answer.status_code) == (roles, status)


@pytest.mark.parametrize("at", ["2100-01-31", "2100-01-31T12:00:00", 5, "tomorrow"])
def test_a_deadline_is_a_date_with_a_time_zone(api, at):
    assert api.post("/v1/plans", json={"jobs": [JOB], "deadline_at": at}).status_code == 400


def test_a_plan_says_whether_it_meets_the_deadline(api):
    met = api.post("/v1/plans", json={"jobs": [JOB], "deadline_at": "2100-01-31T12:00:00Z"}).json["plan"]
    assert met["late_s"] is None
