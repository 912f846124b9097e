"""Filters, order and pages of the lists."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.model.objects.pool import JobState

JOB = {"function": "sha256", "requester": "node-1", "input_bytes": 5}


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


@pytest.fixture
def create(api):
    def make(jobs=1, **headers):
        answer = api.post("/v1/batches", json={"jobs": [JOB] * jobs}, headers=headers)
        return answer.json["batch"]["uuid"]

    return make


def uuids(answer, nouns="batches"):
    assert answer.status_code == 200, answer.text
    return [one["uuid"] for one in answer.json[nouns]]


def test_a_list_has_the_states_that_are_wanted(api, create):
    first, second, third = create(), create(), create()
    api.delete(f"/v1/batches/{second}")
    cancelled = api.get(f"/v1/batches/{second}").json["batch"]["state"]
    assert uuids(api.get(f"/v1/batches?state={cancelled.lower()}")) == [second]
    assert uuids(api.get(f"/v1/batches?state=PENDING&state={cancelled}&state=RUNNING")) == [third, second, first]


def test_a_list_has_what_has_a_name(api):
    def make(name):
        return api.post("/v1/batches", json={"jobs": [JOB], "name": name}).json["batch"]["uuid"]

    one, two, again = make("one"), make("two words"), make("one")
    assert uuids(api.get("/v1/batches?name=one")) == [again, one]
    assert uuids(api.get("/v1/batches?name=one&name=two+words&limit=2")) == [again, two]
    assert uuids(api.get("/v1/batches?name=on")) == []
    for nouns in ("pipelines", "tasks", "gangs", "designs"):
        assert uuids(api.get(f"/v1/{nouns}?name=one"), nouns) == []
    assert api.get("/v1/jobs?name=one").status_code == 400


def test_a_list_begins_at_a_moment(api, create):
    first, second = create(), create()
    at = api.get(f"/v1/batches/{second}").json["batch"]["created_at"]
    assert uuids(api.get("/v1/batches", query_string={"since": at})) == [second]
    assert uuids(api.get("/v1/batches", query_string={"since": datetime.now(UTC).isoformat()})) == []
    assert uuids(api.get("/v1/batches", query_string={"since": "2026-01-01T00:00:00Z"})) == [second, first]


def test_batches_and_pipelines_are_listed_by_the_functions_and_hosts_of_their_jobs(api, create):
    batch = create(3)
    subtask = JOB | {"name": "a"}
    pipeline = api.post("/v1/pipelines", json={"subtasks": [subtask]}).json["pipeline"]["uuid"]
    (host,) = {job["host"] for job in api.get(f"/v1/jobs?batch_uuid={batch}").json["jobs"]}
    assert uuids(api.get("/v1/batches?function=sha256&limit=1")) == [pipeline]
    assert uuids(api.get(f"/v1/batches?function=sha256&marker={pipeline}")) == [batch]
    assert uuids(api.get(f"/v1/batches?function=aes&function=sha256&host={host}"))[-1] == batch
    for nothing in ("function=aes", "host=node-9", f"function=aes&host={host}", "function=sha256&host=node-9"):
        assert uuids(api.get(f"/v1/batches?{nothing}")) == []
    assert uuids(api.get("/v1/pipelines?function=sha256"), "pipelines") == [pipeline]
    assert api.get("/v1/gangs?function=sha256").status_code == 400


@pytest.mark.parametrize("nouns", ["slots", "cards", "hosts"])
def test_slots_cards_and_hosts_are_listed_by_the_time_of_their_last_event(api, nouns):
    slot = api.get("/v1/slots").json["slots"][0]
    api.patch(f"/v1/slots/{slot['uuid']}", json={"drain": True})
    event = api.get(f"/v1/slots/{slot['uuid']}/events").json["events"][0]["at"]

    def names(since):
        return [one["name"] for one in api.get(f"/v1/{nouns}", query_string={"since": since}).json[nouns]]

    changed = {"slots": [slot["name"]], "cards": ["node-1/card-0"], "hosts": []}[nouns]
    assert names(event) == changed
    assert names("2099-01-01T00:00:00Z") == []
    assert api.get(f"/v1/{nouns}?since=soon").status_code == 400


@pytest.mark.parametrize("below_s", [0.0, 2.4e-7, 4.8e-7])
def test_a_moment_as_it_is_shown_is_no_later_than_that_which_is_stored(api, create, pool, below_s):
    uuid = create()
    pool.tx.save(replace(pool.tx.batch(uuid), created_at=1_800_000_000.000003 - below_s))
    at = api.get(f"/v1/batches/{uuid}").json["batch"]["created_at"]
    assert uuids(api.get("/v1/batches", query_string={"since": at})) == [uuid]


def test_pages_in_the_other_order_keep_their_filters(api, create):
    made = [create() for _ in range(5)]
    seen, href = [], "/v1/batches?sort=created_at:asc&limit=2&state=PENDING&state=RUNNING"
    while href:
        page = api.get(href)
        seen += uuids(page)
        href = page.json["links"][0]["href"] if page.json["links"] else None
    assert seen == made


def test_jobs_of_all_batches_are_listed_and_each_is_shown(api, create, pool):
    pair = create(2)
    create(1)
    create(1, **{"X-Project-Id": "other"})
    jobs = api.get("/v1/jobs").json["jobs"]
    assert len(jobs) == 3
    of_pair = f"/v1/jobs?batch_uuid={pair}"
    (one,), (two,) = (api.get(f"{of_pair}&limit=1&sort=created_at:{way}").json["jobs"] for way in ("asc", "desc"))
    assert (one["batch_uuid"], two["batch_uuid"], one["uuid"] != two["uuid"]) == (pair, pair, True)
    assert api.get(f"{of_pair}&marker={one['uuid']}&sort=created_at:asc").json["jobs"] == [two]
    assert api.get(of_pair, headers={"X-Project-Id": "other"}).json["jobs"] == []
    assert len(api.get(f"/v1/jobs?host=node-1&function=sha256&state={jobs[0]['state']}").json["jobs"]) == 3
    assert api.get("/v1/jobs?host=node-2").json["jobs"] == []
    shown = api.get(f"/v1/jobs/{jobs[0]['uuid']}").json["job"]
    assert (shown["state"], shown["reason"]) == (JobState.WAITING_INPUT, "")
    # The job is planned to begin at its dispatch.
    assert (shown["expected_at"], shown["pending_reason"]) == (shown["dispatched_at"], "")
    assert shown["history"] != []
    assert api.get(f"/v1/jobs/{jobs[0]['uuid']}", headers={"X-Project-Id": "other"}).status_code == 404


def test_a_batch_that_waits_says_why_and_until_when(api, create, pool):
    pool.plans_at_once = False
    free = create()
    shown = api.get(f"/v1/batches/{free}").json["batch"]
    assert (shown["pending_reason"], shown["expected_at"] is not None) == ("it is about to be planned", True)
    for slot in api.get("/v1/slots").json["slots"]:
        api.patch(f"/v1/slots/{slot['uuid']}", json={"drain": True})
    shown = api.get(f"/v1/batches/{free}").json["batch"]
    assert (shown["pending_reason"], shown["expected_at"]) == ("no slot in service can hold sha256", None)


def test_every_job_that_is_pending_says_why_and_when(api, create, pool):
    pool.plans_at_once = False
    create(2)
    share = {"requester": "node-1", "input_bytes": 5}
    api.post("/v1/tasks", json={"function": "sha256", "shares": [share]})
    first, second = {"name": "a", "function": "sha256", **share}, {"name": "b", "function": "sha256", "after": ["a"]}
    api.post("/v1/pipelines", json={"subtasks": [first, second]})
    listed = api.get("/v1/jobs?state=PENDING").json["jobs"]
    shown = [api.get(f"/v1/jobs/{job['uuid']}").json["job"] for job in listed]
    # A list gives the same fields as the page of a single job, except for the history. An expected time of "now" may
    # differ by the time between the requests.
    assert all("history" in job for job in shown)
    for job in (*listed, *shown):
        job.pop("history", None)
        job["expected_at"] = None if job["expected_at"] is None else "now"
    assert listed == shown
    by_name = {job["name"]: job for job in shown}
    assert len(shown) == 5
    assert all(job["pending_reason"] for job in shown)
    assert [job["name"] for job in shown if job["expected_at"] is None] == ["b"]
    assert by_name["a"]["pending_reason"] == "it is about to be planned"
    assert by_name["b"]["pending_reason"] == "subtasks wait for the results of others"
    for slot in api.get("/v1/slots").json["slots"]:
        api.patch(f"/v1/slots/{slot['uuid']}", json={"drain": True})
    drained = api.get(f"/v1/jobs/{by_name['a']['uuid']}").json["job"]
    assert (drained["pending_reason"], drained["expected_at"]) == ("no slot in service can hold sha256", None)


def test_a_batch_behind_others_waits_for_the_first_slot_that_is_free(api, create, pool):
    pool.plans_at_once = False
    ahead = create()
    pool.plan(ahead, lead_s=100.0)  # on node-1, for 1 s
    api.patch(f"/v1/slots/{pool.tx.slot('node-2/card-0/r0').uuid}", json={"drain": True})
    shown = api.get(f"/v1/batches/{create()}").json["batch"]
    (job,) = pool.tx.batch_jobs(ahead)
    assert shown["pending_reason"] == "all slots that can hold sha256 have work"
    assert datetime.fromisoformat(shown["expected_at"]).timestamp() == pytest.approx(job.dispatched_at + 1.0, abs=1e-5)
    assert api.get(f"/v1/batches/{ahead}").json["batch"]["pending_reason"] == ""


def test_slots_are_filtered_and_paged_by_name(api):
    names = [slot["name"] for slot in api.get("/v1/slots").json["slots"]]
    assert names == ["node-1/card-0/r0", "node-2/card-0/r0"]
    first = api.get("/v1/slots?limit=1").json
    assert [slot["name"] for slot in first["slots"]] == names[:1]
    rest = api.get(first["links"][0]["href"]).json
    assert [slot["name"] for slot in rest["slots"]] == names[1:]
    assert [slot["name"] for slot in api.get("/v1/slots?host=node-2&state=empty").json["slots"]] == names[1:]
    assert api.get("/v1/slots?function=sha256").json["slots"] == []
    assert [slot["name"] for slot in api.get("/v1/slots?sort=name:desc").json["slots"]] == names[::-1]


def test_hosts_are_filtered_by_whether_they_are_alive(api):
    assert [host["name"] for host in api.get("/v1/hosts?alive=true").json["hosts"]] == ["node-1", "node-2"]
    assert api.get("/v1/hosts?alive=false").json["hosts"] == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/batches?state=LATE", "state: expected one of PENDING, RUNNING"),
        ("/v1/batches?since=yesterday", "since: expected a date with a time zone"),
        ("/v1/batches?since=2026-01-01T00:00:00", "since: expected a date with a time zone"),
        (
            "/v1/batches?since=1700000000",
            "since: expected a date with a time zone, such as 2026-01-31T12:00:00Z, found",
        ),
        (
            "/v1/usage?start=20260131",
            "start: expected a date with a time zone, such as 2026-01-31T12:00:00Z, found",
        ),
        ("/v1/batches?sort=name", "sort: expected created_at with :asc or :desc"),
        ("/v1/gangs?host=node-1", "unknown: ['host']"),
        ("/v1/slots?state=LATE", "state: expected one of EMPTY, LOADING"),
        ("/v1/jobs?limit=1&limit=2", "limit: expected once, found 2 times"),
        ("/v1/hosts?alive=perhaps", "alive: expected"),
    ],
)
def test_a_parameter_that_cannot_be_right_is_refused_by_name(api, path, says):
    answer = api.get(path)
    assert answer.status_code == 400
    assert says in answer.json["errors"][0]["detail"]


def test_an_admin_lists_other_projects_and_nobody_else_does(api, create):
    other = create(**{"X-Project-Id": "other"})
    mine = create()
    reader = {"X-Roles": "reader"}
    assert uuids(api.get("/v1/batches")) == [mine]
    assert uuids(api.get("/v1/batches?project_id=demo", headers=reader)) == [mine]
    assert uuids(api.get("/v1/batches?project_id=other")) == [other]
    assert uuids(api.get("/v1/batches?project_id=all")) == [mine, other]
    for path in ("/v1/batches", "/v1/gangs", "/v1/pipelines", "/v1/tasks", "/v1/jobs"):
        for project in ("other", "all"):
            answer = api.get(f"{path}?project_id={project}", headers=reader)
            assert (answer.status_code, answer.json["errors"][0]["code"]) == (403, "fpga_pool.forbidden")
