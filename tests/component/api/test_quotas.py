import pytest

from fpga_pool.api.app import create_app
from fpga_pool.model.exceptions import QuotaExceeded

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_a_project_sees_its_own_quota_and_use(api):
    api.post("/v1/batches", json={"jobs": [JOB, JOB]})
    quota = api.get("/v1/quotas").json["quota"]
    assert quota["project_id"] == "demo"
    assert quota["resources"][0] == {"resource": "jobs", "limit": 100_000, "default": True, "used": 2}
    assert api.get("/v1/quotas/other").json["quota"]["resources"][0]["used"] == 0


def test_limits_are_set_one_by_one_and_unset_together(api):
    api.put("/v1/quotas/other", json={"jobs": 5})
    answer = api.put("/v1/quotas/other", json={"task_slots": -1, "jobs": None})
    assert answer.status_code == 200
    limits = {one["resource"]: (one["limit"], one["default"]) for one in answer.json["quota"]["resources"]}
    assert (limits["jobs"], limits["task_slots"]) == ((5, False), (-1, False))
    answer = api.delete("/v1/quotas/other")
    assert (answer.status_code, answer.json["quota"]["resources"][0]["default"]) == (200, True)


@pytest.mark.parametrize("body", [{"jobs": -2}, {"jobs": 2**63}, {"jobs": "5"}, {"cards": 5}, {"jobs": 1.5}, []])
def test_impossible_limits_are_refused(api, body):
    assert api.put("/v1/quotas/other", json=body).status_code == 400


@pytest.mark.parametrize("name", ["a%20b", "x" * 65, "%00"])
def test_impossible_projects_are_refused(api, name):
    assert api.put(f"/v1/quotas/{name}", json={"jobs": 5}).status_code == 400


def test_what_a_quota_does_not_allow_is_forbidden_with_a_code_of_its_own(api, pool):
    pool.breaks["create_batch"] = [QuotaExceeded("jobs: 1 requested, 3 of 3 used")]
    answer = api.post("/v1/batches", json={"jobs": [JOB]})
    (error,) = answer.json["errors"]
    assert (answer.status_code, error["code"]) == (403, "fpga_pool.quota_exceeded")
    assert "3 of 3 used" in error["detail"]
