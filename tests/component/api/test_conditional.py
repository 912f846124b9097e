"""ETags of objects, and conditional requests (`If-None-Match`, `If-Match`)."""

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.api.operations import OPERATIONS

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}


@pytest.fixture
def clock(monkeypatch):
    """Return a stopped clock, so that the expected times of waiting work stay the same."""
    clock = Clock()
    monkeypatch.setattr("time.time", lambda: clock.now_s)
    return clock


class Clock:
    now_s = 1_800_000_000.0


@pytest.fixture
def api(pool, clock):
    return create_app(pool).test_client()


@pytest.fixture
def paths(api):
    """Return the path of one object of each kind that has a GET operation."""
    bodies = {
        "batches": {"jobs": [JOB]},
        "gangs": {"processes": 1, "runtime_s": 60, "cpu_usage": 0.5},
        "tasks": {"function": "sha256", "shares": [{"requester": "node-1", "input_bytes": 5}]},
        "pipelines": {"subtasks": [JOB | {"name": "a"}]},
        "designs": {
            "name": "mine", "board": "kintex7", "kind": "small", "io_bps": 1e9, "b_s_per_byte": 1e-9,
            "simulates": "sha256", "bitstream": "aGVsbG8=",
        },
    }  # fmt: skip
    found = {nouns: api.post(f"/v1/{nouns}", json=body).headers["Location"] for nouns, body in bodies.items()}
    found["jobs"] = f"/v1/jobs/{api.get('/v1/jobs').json['jobs'][0]['uuid']}"
    found["cards"] = f"/v1/cards/{api.get('/v1/cards').json['cards'][1]['uuid']}"
    found["bitstreams"] = f"/v1/bitstreams/{api.get('/v1/bitstreams').json['bitstreams'][0]['uuid']}"
    found["processors"] = f"/v1/processors/{api.get('/v1/processors').json['processors'][0]['uuid']}"
    found["services"] = f"/v1/services/{api.get('/v1/services').json['services'][0]['uuid']}"
    found["slots"] = f"/v1/slots/{api.get('/v1/slots').json['slots'][0]['uuid']}"
    return found | {
        "hosts": "/v1/hosts/node-1", "functions": "/v1/functions/sha256", "quotas": "/v1/quotas/demo",
        "own quota": "/v1/quotas", "pool": "/v1/pool",
    }  # fmt: skip


def test_every_object_has_an_etag_which_spares_its_body_while_it_stays_the_same(api, paths, pool):
    paths["instances"] = f"/v1/instances/{pool.instance_on('node-2')}"
    tagged = {one.path for one in OPERATIONS if one.has_tag and one.method == "GET"}
    assert len(tagged) == len(paths)
    for noun, path in paths.items():
        first = api.get(path)
        again = api.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (noun, again.status_code, again.data) == (noun, 304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Cache-Control"] == first.headers["Cache-Control"] == "private, no-cache"
        assert again.headers["x-openstack-request-id"].startswith("req-")
        assert api.get(path, headers={"If-None-Match": '"another"'}).json == first.json
        assert api.head(path).headers["ETag"] == first.headers["ETag"]
    assert len({api.get(path).headers["ETag"] for path in paths.values()}) == len(paths) - 1  # both quotas are one


def test_the_etag_of_a_slot_is_another_after_a_change(api, paths):
    before = api.get(paths["slots"])
    drained = api.patch(paths["slots"], json={"drain": True})
    after = api.get(paths["slots"], headers={"If-None-Match": before.headers["ETag"]})
    assert (after.status_code, after.json) == (200, drained.json)
    assert before.headers["ETag"] not in {drained.headers["ETag"], after.headers["ETag"]}


#: How an object of each kind is changed: method, body, and status of the answer.
CHANGES = {
    "batches": ("DELETE", None, 202), "gangs": ("DELETE", None, 202), "tasks": ("DELETE", None, 202),
    "pipelines": ("DELETE", None, 202), "slots": ("PATCH", {"drain": True, "reason": "r"}, 200),
    "cards": ("PATCH", {"drain": True, "reason": "r"}, 200),
    "quotas": ("PUT", {"jobs": 7}, 200), "designs": ("PATCH", {"state": "APPROVED"}, 200),
}  # fmt: skip


def test_every_operation_that_changes_an_object_knows_if_match():
    conditional = {one.path.split("/")[2] for one in OPERATIONS if one.is_conditional}
    assert conditional == set(CHANGES)


@pytest.mark.parametrize("nouns", CHANGES)
def test_a_change_is_refused_where_the_object_is_not_as_it_was_seen(api, paths, nouns):
    method, body, status = CHANGES[nouns]

    def change(tag):
        given = {} if body is None else {"json": body}
        return api.open(paths[nouns], method=method, headers={"If-Match": tag}, **given)

    seen = api.get(paths[nouns]).headers["ETag"]
    for other in ('"0000000000000000-0"', '"99"', f"W/{seen}", ""):
        refused = change(other)
        assert (other, refused.status_code, refused.json["errors"][0]["code"]) == (
            other, 412, "fpga_pool.precondition_failed",
        )  # fmt: skip
    assert api.get(paths[nouns]).headers["ETag"] == seen
    assert change(f'"99", {seen}').status_code == status
    assert api.get(paths[nouns]).headers["ETag"] != seen
    assert change(seen).status_code == 412


def test_any_version_is_what_a_star_means(api, paths):
    assert api.delete(paths["batches"], headers={"If-Match": "*"}).status_code == 202
    missing = f"/v1/batches/{'0' * 32}"
    assert api.delete(missing, headers={"If-Match": "*"}).status_code == 404


def test_what_is_only_foreseen_of_a_batch_changes_its_etag_but_not_its_version(api, pool, clock):
    """The expected time of a waiting batch moves on. A client that cancels with the earlier ETag still succeeds."""
    pool.plans_at_once = False
    path = api.post("/v1/batches", json={"jobs": [JOB]}).headers["Location"]
    first = api.get(path)
    clock.now_s += 1.0
    second = api.get(path, headers={"If-None-Match": first.headers["ETag"]})
    assert second.status_code == 200
    assert first.json["batch"]["expected_at"] < second.json["batch"]["expected_at"]
    assert api.delete(path, headers={"If-Match": first.headers["ETag"]}).status_code == 202


def test_equal_limits_are_the_same_version(api):
    first = api.put("/v1/quotas/other", json={"jobs": 7}).headers["ETag"]
    api.put("/v1/quotas/other", json={"jobs": 8})
    api.put("/v1/quotas/other", json={"jobs": 7})
    assert api.delete("/v1/quotas/other", headers={"If-Match": first}).status_code == 200
    assert api.delete("/v1/quotas/other", headers={"If-Match": first}).status_code == 412


@pytest.mark.parametrize(
    ("method", "path", "header"),
    [
        ("GET", "/v1/slots", "If-Match"),
        ("POST", "/v1/batches", "If-Match"),
        ("POST", "/v1/batches", "If-None-Match"),
        ("DELETE", "/v1/quotas/other", "If-None-Match"),
    ],
)
def test_a_condition_that_would_not_be_kept_is_refused(api, method, path, header):
    given = {"json": {"jobs": [JOB]}} if method == "POST" else {}
    assert api.open(path, method=method, headers={header: '"1"'}, **given).status_code == 400
    assert api.get("/v1/batches").json["batches"] == []


def test_a_list_has_no_etag_and_is_always_answered(api, paths):
    answer = api.get("/v1/batches", headers={"If-None-Match": "*"})
    assert (answer.status_code, "ETag" in answer.headers) == (200, False)


def test_the_document_names_conditions_and_their_answers(api):
    methods = api.get("/v1/openapi.json").json["paths"]["/v1/slots/{uuid}"]
    named = {method: {one["name"] for one in methods[method]["parameters"]} for method in ("get", "patch")}
    assert ("If-None-Match" in named["get"], "If-Match" in named["get"]) == (True, False)
    assert ("If-None-Match" in named["patch"], "If-Match" in named["patch"]) == (False, True)
    assert "ETag" in methods["get"]["responses"]["200"]["headers"]
    assert "304" in methods["get"]["responses"]
    assert "412" in methods["patch"]["responses"]


def test_a_batch_is_changed_only_in_the_version_that_was_seen(api, paths):
    held = api.patch(paths["batches"], json={"held": True})
    assert (held.status_code, held.json["batch"]["held"]) == (200, True)
    seen = {"If-Match": held.headers["ETag"]}
    released = api.patch(paths["batches"], json={"held": False}, headers=seen)
    assert (released.status_code, released.json["batch"]["held"]) == (200, False)
    late = api.patch(paths["batches"], json={"priority": 3}, headers=seen)
    assert (late.status_code, late.json["errors"][0]["code"]) == (412, "fpga_pool.precondition_failed")
    assert api.get(paths["batches"]).json["batch"]["priority"] == 0


@pytest.mark.parametrize("body", [{}, {"held": 1}, {"priority": 0.5}, {"name": "x"}])
def test_a_change_that_says_nothing_or_cannot_be_is_refused(api, paths, body):
    assert api.patch(paths["batches"], json=body).status_code == 400


def test_pipelines_are_held_by_their_uuid_and_tasks_are_not(api, paths):
    pipeline, task = (f"/v1/batches/{paths[nouns].rpartition('/')[2]}" for nouns in ("pipelines", "tasks"))
    assert api.patch(pipeline, json={"held": True, "priority": 2}).json["batch"]["held"] is True
    assert api.patch(task, json={"held": True}).status_code == 409
