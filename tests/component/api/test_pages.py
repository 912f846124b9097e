"""Every list of the API has pages, in both orders, and the client reads all of them."""

import re
import time

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.api.openapi import openapi
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.client import Client
from fpga_pool.model.messages.agents import ObservedFlow
from fpga_pool.store.store import LastBeat
from support.permissions import BODIES, JOB

#: Lists with one order only: that of the index from which their pages are read.
UNSORTED = {"list_events"}


def answered(operation):
    """Return the fields of the answer of an operation."""
    document = openapi()
    path = re.sub(r"<(\w+)>", r"{\1}", operation.path)
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]


def listed(operation):
    """Return the key of the list in an answer; None if the answer is a single object."""
    lists = [key for key, field in answered(operation).items() if key != "links" and "$ref" in field.get("items", {})]
    return next(iter(lists), None)


LISTS = {one.name: one for one in OPERATIONS if one.method == "GET" and not one.key and listed(one)}


def parameters(operation):
    path = re.sub(r"<(\w+)>", r"{\1}", operation.path)
    return {one["name"] for one in openapi()["paths"][path]["get"]["parameters"] if one["in"] == "query"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory, new_pool):
    """Return a pool with at least two objects of each kind."""
    pool = new_pool(tmp_path_factory.mktemp("pool"), 100)
    measured = next(iter(pool.counters())).counters
    pool.store.note_alive({"node-2": LastBeat("", 0, 0, (), measured)}, 1000.0)
    pool.have_used(["demo"], ["aes", "sha256"])
    pool.plans_at_once = False
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def api(pool):
    return create_app(pool).test_client()


@pytest.fixture(scope="module")
def uuids(api, pool):
    """Return the object whose jobs or events are listed, by noun."""

    def create(nouns, body):
        answer = api.post(f"/v1/{nouns}", json=body)
        assert answer.status_code == 201, answer.text
        return next(thing["uuid"] for thing in answer.json.values() if "uuid" in thing)

    for nouns in ("pipelines", "tasks", "gangs"):
        create(nouns, BODIES[f"create_{nouns[:-1]}"])
    for name in ("one", "two"):
        create("designs", BODIES["create_design"] | {"name": name})
    found = {noun: create(f"{noun}s", BODIES[f"create_{noun}"]) for noun in ("pipeline", "task", "gang")}
    first = api.get("/v1/slots").json["slots"][0]
    slot = first["uuid"]
    for drain in (True, False):
        api.patch(f"/v1/slots/{slot}", json={"drain": drain})
    create("batches", {"jobs": [JOB]})
    found["batch"] = create("batches", {"jobs": [JOB] * 3})
    pool.plan(found["batch"])
    jobs = pool.tx.batch_jobs(found["batch"])
    pool.has_run(jobs)
    flows = tuple(ObservedFlow(job=job.uuid, attempt=job.attempt, bps=1e6) for job in jobs)
    pool.store.note_alive({"node-1": LastBeat("", 0, 0, flows, None)}, time.time())
    found["job"] = jobs[0].uuid
    design = api.get("/v1/designs").json["designs"][0]
    found |= {"design": design["uuid"], "function": design["function"]}
    api.patch(f"/v1/designs/{found['design']}", json={"state": "APPROVED"})
    found["instance"] = pool.instance_on("node-2")
    api.put("/v1/quotas/other", json={"jobs": 5})
    api.delete("/v1/quotas/other")
    cards = api.get("/v1/cards").json["cards"]
    card = next(one["uuid"] for one in cards if first["name"].startswith(f"{one['name']}/"))
    return found | {"slot": slot, "host": "node-1", "card": card, "quota": "other"}


def pages(api, href, key):
    """Follow the links of all pages and return their rows."""
    rows = []
    while href:
        answer = api.get(href)
        assert answer.status_code == 200, answer.text
        assert len(answer.json[key]) <= 1
        rows += answer.json[key]
        href = next((link["href"] for link in answer.json["links"] if link["rel"] == "next"), None)
    return rows


def identity(row):
    """Return the fields of a row that do not change with time."""
    known = ("uuid", "name", "kind", "host", "job", "function", "board", "state", "number", "project_id")
    return tuple(row.get(name) for name in known)


#: Minimum lengths of the lists that have fewer than two rows here, because no scheduler runs that adds more.
SHORT = {"calibration": 1, "list_host_events": 0, "list_gang_events": 1, "list_pipeline_events": 1,
         "list_task_events": 1, "list_instance_events": 1, "list_batch_events": 1}  # fmt: skip


@pytest.mark.parametrize("operation", LISTS.values(), ids=LISTS)
def test_every_list_has_pages(api, uuids, operation):
    key = listed(operation)
    assert "links" in answered(operation)
    assert {"limit", "marker"} <= parameters(operation)
    assert ("sort" in parameters(operation)) is (operation.name not in UNSORTED)
    target = uuids.get(operation.noun, "")
    path = operation.path.replace("<uuid>", target).replace("<name>", target)
    answer = api.get(path)
    whole = [identity(row) for row in answer.json[key]]
    assert len(whole) >= SHORT.get(operation.name, 2)
    assert answer.json["links"] == []
    assert [identity(row) for row in pages(api, f"{path}?limit=1", key)] == whole
    if operation.name not in UNSORTED:
        field, _, way = operation.query().sort.partition(":")
        other = {"asc": "desc", "desc": "asc"}[way]
        turned = [identity(row) for row in pages(api, f"{path}?limit=1&sort={field}:{other}", key)]
        assert turned == whole[::-1]


def test_a_page_of_changed_jobs_leads_to_the_rest_of_the_same_changes(api, uuids):
    path = f"/v1/batches/{uuids['batch']}/jobs?changed_after=&batch=true&limit=2"
    first = api.get(path).json
    rest = api.get(first["links"][0]["href"]).json
    assert [job["index"] for job in first["jobs"] + rest["jobs"]] == [0, 1, 2]
    assert (first["seen"], rest["batch"]["uuid"], rest["links"]) == (rest["seen"], uuids["batch"], [])


def test_the_client_reads_all_pages_of_each_list(pool, serve, uuids, monkeypatch):
    with Client(serve(pool)) as client:
        asked = (
            client.batches, client.bitstreams, client.calibration, client.cards, client.counters, client.designs,
            client.flows, client.functions, client.gangs, client.hosts, client.pipelines, client.processors,
            client.project_jobs, client.services, client.slots, client.tasks, client.usage, client.work_counts,
        )  # fmt: skip
        whole = [[identity_of(one) for one in ask()] for ask in asked]
        monkeypatch.setattr("fpga_pool.client.api._PAGE", 1)
        assert [[identity_of(one) for one in ask()] for ask in asked] == whole
        assert [[identity_of(one) for one in ask(limit=1)] for ask in asked] == [rows[:1] for rows in whole]


def identity_of(one):
    return identity({name: getattr(one, name, None) for name in ("uuid", "name", "kind", "host", "job", "function")})
