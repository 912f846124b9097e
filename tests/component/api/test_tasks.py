"""Tasks over the REST API. Each host of the pool has one slot."""

import uuid

import pytest

SHARE = {"requester": "node-1", "input_bytes": 5}
TASK = {"function": "sha256", "topology": "line", "shares": [SHARE | {"input_bytes": 7, "name": "b"}]}


@pytest.fixture
def http(pool):
    from fpga_pool.api.app import create_app

    return create_app(pool).test_client()


def test_a_task_that_was_created_is_shown_with_its_shares_which_are_jobs_of_its_batch(http):
    answer = http.post("/v1/tasks", json=TASK | {"name": "weather"})
    assert answer.status_code == 201
    shown = http.get(answer.headers["Location"]).json["task"]
    assert (shown["name"], shown["state"], shown["slots"], shown["topology"]) == ("weather", "QUEUED", 1, "line")
    assert shown["input_bytes"] == 7
    assert [(share["name"], share["state"]) for share in shown["share_list"]] == [("b", "PENDING")]
    assert shown["slot_list"] == []
    assert [(event["event"], event["after"]) for event in shown["history"]] == [("Created", "QUEUED")]
    assert shown["expected_at"] >= shown["created_at"]
    batch = http.get(f"/v1/batches/{shown['uuid']}").json["batch"]
    assert (batch["policy"], batch["jobs"]) == ("task", 1)


def test_a_malleable_task_is_shown_with_its_shapes(http):
    asked = TASK | {"shares": [SHARE] * 3, "shapes": [{"slots": 2, "seconds": 1.5}, {"slots": 1}]}
    place = http.post("/v1/tasks", json=asked).headers["Location"]
    shown = http.get(place).json["task"]
    assert shown["shapes"] == [{"slots": 2, "seconds": 1.5}, {"slots": 1, "seconds": None}]
    assert (shown["shares"], shown["slots"], len(shown["share_list"])) == (3, 2, 3)
    assert shown["expected_at"] >= shown["created_at"]
    rigid = http.post("/v1/tasks", json=TASK).json["task"]
    assert (rigid["shares"], rigid["slots"], rigid["shapes"]) == (1, 1, [])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"shares": []}, "shares: expected a list of 1 to 62 shares, found []"),
        ({"shares": [SHARE] * 63}, "shares: expected a list of 1 to 62 shares"),
        ({"shares": [SHARE] * 40}, "shares: no host of the pool has 40 slots for sha256 linked as a line"),
        ({"shares": [SHARE | {"input_bytes": -1}]}, "shares[0].input_bytes: expected 0 to"),
        ({"shares": [SHARE | {"requester": "nobody"}]}, "shares[0].requester: no host 'nobody' in the pool"),
        ({"shares": [SHARE | {"function": "aes"}]}, "unknown: ['function']"),
        ({"shapes": [{"slots": 0}]}, "shapes[0].slots: expected 1 to 62, found 0"),
        ({"shapes": [{"slots": 2}]}, "shapes[0].slots: expected 1 to 1, at least one share per slot, found 2"),
        ({"shapes": [{"slots": 1, "seconds": 0}]}, "shapes[0].seconds: expected"),
        ({"shapes": [[1, 2.0]]}, "shapes[0]: expected `object`, got `array`, found [1, 2.0]"),
        ({"topology": "star"}, "topology: expected any, line or ring, found 'star'"),
        ({"function": "fft"}, "function: 'fft' is not in the catalogue"),
        ({"policy": "lattice"}, "unknown: ['policy']"),
        ({"uuid": "x"}, "uuid: expected a uuid, found 'x'"),
    ],
)
def test_a_task_that_cannot_be_right_is_refused_with_what_would_be(http, change, complaint):
    answer = http.post("/v1/tasks", json=TASK | change)
    assert answer.status_code == 400
    assert complaint in answer.json["errors"][0]["detail"]
    assert http.get("/v1/tasks").json["tasks"] == http.get("/v1/batches").json["batches"] == []


def test_a_task_is_created_once_under_its_uuid(http):
    mine = TASK | {"uuid": str(uuid.uuid4())}
    assert http.post("/v1/tasks", json=mine).status_code == 201
    assert http.post("/v1/tasks", json=mine).status_code == 409
    assert len(http.get("/v1/tasks").json["tasks"]) == 1


def test_tasks_are_listed_newest_first_a_page_at_a_time(http):
    made = [http.post("/v1/tasks", json=TASK).json["task"]["uuid"] for _ in range(3)]
    first = http.get("/v1/tasks?limit=2").json
    rest = http.get(first["links"][0]["href"]).json
    assert [task["uuid"] for task in first["tasks"] + rest["tasks"]] == made[::-1]
    assert rest["links"] == []


def test_another_project_sees_no_task_and_ends_none(http):
    place = http.post("/v1/tasks", json=TASK).headers["Location"]
    other = {"X-Project-Id": "other"}
    assert http.get("/v1/tasks", headers=other).json["tasks"] == []
    assert http.get(place, headers=other).status_code == http.delete(place, headers=other).status_code == 404
    assert http.get(place).json["task"]["state"] == "QUEUED"


def test_a_task_that_waits_is_cancelled_at_once_and_once(http):
    place = http.post("/v1/tasks", json=TASK).headers["Location"]
    answer = http.delete(place)
    assert (answer.status_code, answer.json["task"]["state"]) == (202, "CANCELLED")
    assert http.delete(place).status_code == 409
