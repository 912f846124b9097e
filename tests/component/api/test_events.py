"""Lists of the events of objects, with pages and filters."""

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.api.operation import link_to
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.objects.history import EVENTFUL
from support.permissions import BODIES

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


@pytest.fixture
def slot(api):
    """Drain and resume a slot three times; return its path."""
    path = f"/v1/slots/{api.get('/v1/slots').json['slots'][0]['uuid']}"
    for number in range(3):
        api.patch(path, json={"drain": True, "reason": f"repair {number}"})
        api.patch(path, json={"drain": False})
    return path


#: The events of that slot. Nothing runs in it, so each drain completes at once.
STEPS = ["DrainRequested", "DrainCompleted", "ResumeRequested"] * 3


def names(answer):
    assert answer.status_code == 200, answer.text
    return [event["event"] for event in answer.json["events"]]


def test_events_are_listed_newest_first_or_oldest_first(api, slot):
    assert names(api.get(f"{slot}/events?sort=at:asc")) == STEPS
    assert names(api.get(f"{slot}/events")) == names(api.get(f"{slot}/events?sort=at:desc")) == STEPS[::-1]
    first = api.get(f"{slot}/events?sort=at:asc").json["events"][0]
    assert (first["before"], first["after"], first["reason"], first["request_id"]) == (
        "EMPTY", "EMPTY", "repair 0", "",
    )  # fmt: skip
    assert first["at"].endswith("+00:00")


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_join_to_the_whole_list(api, slot, order):
    seen, href, pages = [], f"{slot}/events?sort=at:{order}&limit=4", 0
    while href:
        answer = api.get(href)
        seen += [event["number"] for event in answer.json["events"]]
        href = next((link["href"] for link in answer.json["links"] if link["rel"] == "next"), None)
        pages += 1
    numbers = list(range(1, len(STEPS) + 1))
    assert seen == (numbers if order == "asc" else numbers[::-1])
    # Nine events: pages of 4, 4 and 1.
    assert pages == 3


def test_events_are_narrowed_by_name_and_time(api, slot):
    events = api.get(f"{slot}/events?sort=at:asc").json["events"]
    assert names(api.get(f"{slot}/events?event=DrainCompleted")) == ["DrainCompleted"] * 3
    both = api.get(f"{slot}/events?event=DrainCompleted&event=ResumeRequested&sort=at:asc")
    assert names(both) == ["DrainCompleted", "ResumeRequested"] * 3
    assert names(api.get(f"{slot}/events?event=Nonsense")) == []

    # From the second drain request (inclusive) to the second resume request (exclusive).
    since, until = events[3]["at"], events[5]["at"]
    given = {"since": since, "until": until, "sort": "at:asc"}
    found = [event["number"] for event in api.get(f"{slot}/events", query_string=given).json["events"]]
    assert found == [event["number"] for event in events if since <= event["at"] < until]
    assert 4 in found
    assert 6 not in found


def test_pages_of_some_events_join_to_the_list_of_these(api, slot):
    seen, href = [], f"{slot}/events?sort=at:asc&event=DrainRequested&limit=2"
    while href:
        answer = api.get(href)
        seen += [event["number"] for event in answer.json["events"]]
        href = next((link["href"] for link in answer.json["links"]), None)
    assert seen == [1, 4, 7]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "marker=x", "marker=-1", "sort=event", "state=READY", "since=soon"]
)
def test_a_page_that_cannot_be_right_is_refused(api, slot, query):
    assert api.get(f"{slot}/events?{query}").status_code == 400


def test_every_object_of_a_project_begins_with_its_creation(api):
    bodies = {
        "batches": {"jobs": [JOB]},
        "gangs": {"processes": 1, "runtime_s": 60, "cpu_usage": 0.5},
        "tasks": {"function": "sha256", "shares": [{"requester": "node-1", "input_bytes": 5}]},
        "pipelines": {"subtasks": [JOB | {"name": "a"}]},
    }
    for nouns, body in bodies.items():
        path = api.post(f"/v1/{nouns}", json=body).headers["Location"]
        (created,) = api.get(f"{path}/events?sort=at:asc&limit=1").json["events"]
        assert (created["number"], created["event"], created["before"]) == (0, "Created", "")
    job = api.get("/v1/jobs").json["jobs"][0]["uuid"]
    assert names(api.get(f"/v1/jobs/{job}/events"))[-1] == "Created"


def test_a_batch_is_no_pipeline(api):
    batch = api.post("/v1/batches", json={"jobs": [JOB]}).json["batch"]["uuid"]
    assert api.get(f"/v1/pipelines/{batch}/events").status_code == 404


@pytest.mark.parametrize("nouns", sorted({*EVENTFUL.values()} - {"quotas"}))
def test_events_of_what_does_not_exist_are_not_found(api, nouns):
    name = "node-9" if nouns == "hosts" else "0" * 32
    assert api.get(f"/v1/{nouns}/{name}/events").status_code == 404
    assert api.get("/v1/hosts/node-1/events").status_code == 200


def told(answer):
    assert answer.status_code == 200, answer.text
    return [(event["number"], event["event"], event["reason"]) for event in answer.json["events"]]


def test_the_events_of_a_card_are_those_of_its_slots(api, slot):
    card = api.get("/v1/cards").json["cards"][0]["uuid"]
    found = told(api.get(f"/v1/cards/{card}/events?sort=at:asc"))
    assert found[:2] == [
        (0, "DrainRequested", "slot node-1/card-0/r0: repair 0"),
        (1, "DrainCompleted", "slot node-1/card-0/r0"),
    ]
    assert [event for _, event, _ in found] == STEPS


def test_the_events_of_a_quota_are_its_changes_with_each_limit_before_and_after(api):
    path = "/v1/quotas/other"
    assert told(api.get(f"{path}/events")) == []
    for method, body in (("PUT", {"jobs": 5, "tickets": -1}), ("PUT", {"jobs": 5}), ("DELETE", None)):
        assert api.open(path, method=method, json=body).status_code == 200
    # The second request changed nothing, so it has no event.
    assert told(api.get(f"{path}/events?sort=at:asc")) == [
        (1, "LimitsSet", "jobs default -> 5, tickets default -> unlimited"),
        (2, "LimitsUnset", "jobs 5 -> default, tickets unlimited -> default"),
    ]
    assert told(api.get("/v1/quotas/demo/events")) == []
    assert api.get("/v1/quotas/%00/events").status_code == 400


def test_the_events_of_a_function_are_those_of_its_design_and_the_fits_of_its_time_models(api, pool):
    assert told(api.get("/v1/functions/sha256/events")) == []
    pool.store.save_time_model("sha256", "kintex7", TimeModel(0.5, 1e-9), 12, 2000.0)
    assert told(api.get("/v1/functions/sha256/events")) == [(0, "Refitted", "board kintex7: 12 runs")]
    design = api.post("/v1/designs", json=BODIES["create_design"]).json["design"]
    api.patch(f"/v1/designs/{design['uuid']}", json={"state": "APPROVED", "reason": "reviewed"})
    found = told(api.get(f"/v1/functions/{design['function']}/events?sort=at:asc"))
    name = f"design {design['uuid']}"
    assert found == [(0, "Created", name), (1, "Approved", f"{name}: reviewed")]
    # The design belongs to one project: another project does not see its function.
    foreign = api.get(f"/v1/functions/{design['function']}/events", headers={"X-Project-Id": "other"})
    assert foreign.status_code == 404


# ---- Events of all objects


def test_events_of_all_objects_are_listed_newest_first_each_with_its_object(api, slot):
    batch = api.post("/v1/batches", json={"jobs": [JOB], "name": "night"}).json["batch"]["uuid"]
    events = api.get("/v1/events?project_id=all").json["events"]
    assert [event["at"] for event in events] == sorted((event["at"] for event in events), reverse=True)
    mine = [event for event in events if event["uuid"] == batch]
    assert {(event["kind"], event["name"], event["project_id"], event["host"]) for event in mine} == {
        ("batch", "night", "demo", ""),
    }
    # The same events as in the list of the object.
    shown = api.get(f"/v1/batches/{batch}/events").json["events"]
    assert [{name: event[name] for name in shown[0]} for event in mine] == shown
    drained = [event for event in events if event["kind"] == "slot"]
    assert [event["number"] for event in drained] == [one["number"] for one in api.get(f"{slot}/events").json["events"]]
    assert {(event["name"], event["host"], event["project_id"]) for event in drained} == {
        ("node-1/card-0/r0", "node-1", ""),
    }


def test_events_of_all_objects_are_narrowed(api, slot):
    uuid = api.post("/v1/batches", json={"jobs": [JOB], "name": "night"}).json["batch"]["uuid"]
    api.post("/v1/pipelines", json={"subtasks": [JOB | {"name": "a"}]})

    def found(query, of="kind"):
        return {event[of] for event in api.get(f"/v1/events?project_id=all&{query}").json["events"]}

    assert found("kind=slot") == {"slot"}
    assert found("kind=batch&kind=pipeline") == {"batch", "pipeline"}
    assert found("host=node-1") == {"slot", "job"}
    assert found("host=node-2") == set()
    assert found("name=night", "uuid") == found(f"name={uuid}&kind=batch", "uuid") == {uuid}
    assert found("name=node-1/card-0/r0") == {"slot"}
    assert found("event=DrainCompleted&event=Created", "event") == {"DrainCompleted", "Created"}
    events = api.get("/v1/events?project_id=all&kind=slot").json["events"]
    since, until = events[5]["at"], events[2]["at"]
    between = api.get("/v1/events", query_string={"project_id": "all", "since": since, "until": until}).json["events"]
    assert [one["number"] for one in between] == [one["number"] for one in events if since <= one["at"] < until]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_of_events_of_all_objects_join_to_the_whole_list(api, slot, limit):
    for _ in range(3):
        api.post("/v1/batches", json={"jobs": [JOB, JOB]})
    whole = api.get("/v1/events?project_id=all&limit=1000").json["events"]
    seen, href = [], f"/v1/events?project_id=all&limit={limit}"
    while href:
        page = api.get(href).json
        assert len(page["events"]) <= limit
        seen += page["events"]
        href = next((link["href"] for link in page["links"]), None)
    assert seen == whole
    assert len(whole) > 10


@pytest.mark.parametrize(
    "query",
    [
        "kind=lease", "limit=0", "limit=1001", "marker=x", "marker=nan+batch+1+x", "marker=inf+batch+1+x",
        "marker=5+batch+x+x", "sort=at:asc", "since=soon", "project_id=a+b", "state=READY",
    ],
)  # fmt: skip
def test_a_page_of_all_events_that_cannot_be_right_is_refused(api, query):
    assert api.get(f"/v1/events?{query}").status_code == 400


def test_events_may_be_asked_for_between_any_two_times(api, slot):
    query = {"project_id": "all", "kind": "slot", "since": "1969-01-01T00:00:00Z"}
    ever = api.get("/v1/events", query_string=query | {"until": "9999-12-31T23:59:59.999999Z"})
    assert names(ever) == names(api.get("/v1/events?project_id=all&kind=slot")) == STEPS[::-1]


def test_the_next_page_of_a_function_with_any_name_is_that_of_this_function(api):
    with api.application.test_request_context("/?event=Refitted"):
        link = link_to("/v1/functions/a?b#c d/events", 1, 0)["href"]
    assert link == "/v1/functions/a%3Fb%23c%20d/events?event=Refitted&limit=1&marker=0"
