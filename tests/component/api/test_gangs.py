"""Gangs over the REST API."""

import uuid
from dataclasses import replace

import pytest

from fpga_pool.client import Client
from fpga_pool.model.flavor import Tier
from fpga_pool.model.objects.gangs import Gang, GangState, Process, ProcessState, process_uuid

GANG = {"processes": 2, "runtime_s": 3600, "cpu_usage": 0.6}


@pytest.fixture
def http(pool):
    from fpga_pool.api.app import create_app

    return create_app(pool).test_client()


def test_a_gang_that_was_created_is_shown_with_why_it_waits(http):
    answer = http.post("/v1/gangs", json=GANG | {"name": "weather"})
    assert answer.status_code == 201
    shown = http.get(answer.headers["Location"]).json["gang"]
    assert (shown["name"], shown["state"], shown["processes"], shown["runtime_s"]) == ("weather", "QUEUED", 2, 3600.0)
    assert shown["work_s"] == 3600.0
    assert shown["pending_reason"] == "it would delay a gang ahead of it in the queue"
    assert shown["expected_at"] >= shown["created_at"]
    assert (shown["image"], shown["command"]) == ("", "")
    assert shown["process_list"] == shown["migration_list"] == []
    assert [(event["event"], event["after"]) for event in shown["history"]] == [("Created", "QUEUED")]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"processes": 0}, "processes: expected 1 to 100000, found 0"),
        ({"processes": 3}, "processes: expected 1 to 2, found 3"),
        ({"runtime_s": 0}, "runtime_s: expected a number of seconds above 0, 32000000 at most, found 0"),
        ({"runtime_s": 1e9}, "runtime_s: expected a number of seconds above 0, 32000000 at most"),
        ({"cpu_usage": 1.5}, "cpu_usage: expected a share of a processor, above 0 and 1 at most, found 1.5"),
        ({"cpu_usage": "all"}, "cpu_usage: expected a share of a processor"),
        ({"image": "../x"}, "image: expected a name of letters, digits, '.', '_' and '-', 64 at most; found '../x'"),
        ({"image": 65 * "x"}, "image: expected at most 64 characters, no control characters"),
        ({"command": "a\nb"}, "command: expected at most 1000 characters, no control characters"),
        ({"command": "a\u200bb"}, "command: expected one line of 1000 characters at most"),
        ({"policy": "easy"}, "unknown: ['policy']"),
        ({"uuid": "x"}, "uuid: expected a uuid, found 'x'"),
    ],
)
def test_a_gang_that_cannot_be_right_is_refused_with_what_would_be(http, change, complaint):
    answer = http.post("/v1/gangs", json=GANG | change)
    assert answer.status_code == 400
    assert complaint in answer.json["errors"][0]["detail"]
    assert http.get("/v1/gangs").json["gangs"] == []


def test_a_gang_is_created_once_under_its_uuid(http):
    mine = GANG | {"uuid": str(uuid.uuid4())}
    assert http.post("/v1/gangs", json=mine).status_code == 201
    assert http.post("/v1/gangs", json=mine).status_code == 409
    assert len(http.get("/v1/gangs").json["gangs"]) == 1


def test_gangs_are_listed_newest_first_a_page_at_a_time(http):
    made = [http.post("/v1/gangs", json=GANG).json["gang"]["uuid"] for _ in range(3)]
    first = http.get("/v1/gangs?limit=2").json
    rest = http.get(first["links"][0]["href"]).json
    assert [gang["uuid"] for gang in first["gangs"] + rest["gangs"]] == made[::-1]
    assert rest["links"] == []


def test_another_project_sees_no_gang_and_ends_none(http):
    place = http.post("/v1/gangs", json=GANG).headers["Location"]
    other = {"X-Project-Id": "other"}
    assert http.get("/v1/gangs", headers=other).json["gangs"] == []
    assert http.get(place, headers=other).status_code == http.delete(place, headers=other).status_code == 404
    assert http.get(place).json["gang"]["state"] == "QUEUED"


def test_a_gang_that_waits_is_cancelled_at_once_and_once(http):
    place = http.post("/v1/gangs", json=GANG).headers["Location"]
    answer = http.delete(place)
    assert (answer.status_code, answer.json["gang"]["state"]) == (202, "CANCELLED")
    assert http.delete(place).status_code == 409


@pytest.fixture
def held(pool):
    """Add a gang of another project, with a process in the background of the second of two processors."""
    gang = Gang(
        uuid=str(uuid.uuid4()), project_id="other", user_id="other", name="", processes=1, runtime_s=60.0,
        cpu_usage=0.5, work_s=60.0, created_at=1000.0, state=GangState.BACKGROUND, attempt=1,
    )  # fmt: skip
    process = Process(
        uuid=process_uuid(gang.uuid, 1, 0), gang_uuid=gang.uuid, index=0, attempt=1,
        processor="node-2/pcpu/0", host="node-2", tier=Tier.BACKGROUND,
    )  # fmt: skip
    ended = replace(process, uuid=str(uuid.uuid4()), attempt=0, tier=Tier.FOREGROUND, state=ProcessState.ENDED)
    pool.tx.add(gang, process, ended)
    return process


def test_processors_are_listed_with_what_their_tiers_carry_and_those_that_are_free(http, held, pool):
    free, taken = http.get("/v1/processors").json["processors"]
    assert free == {
        "uuid": free["uuid"],
        "name": "node-1/pcpu/0",
        "host": "node-1",
        "number": 0,
        "offered": True,
        "foreground": None,
        "background": None,
    }
    assert http.get(f"/v1/processors/{free['uuid']}").json["processor"] == free
    process = taken["background"]
    assert (taken["foreground"], process["gang_uuid"], process["state"]) == (None, held.gang_uuid, "RESERVED")
    pool.tx.save(replace(pool.tx.processor("node-1/pcpu/0"), offered=False))
    assert [one["offered"] for one in http.get("/v1/processors").json["processors"]] == [False, True]


def test_processors_are_listed_by_host_and_page(http):
    def names(query):
        return [one["name"] for one in http.get(f"/v1/processors?{query}").json["processors"]]

    assert names("host=node-1") == names("limit=1") == ["node-1/pcpu/0"]
    assert names("sort=name:desc&limit=1") == names("marker=node-1/pcpu/0") == ["node-2/pcpu/0"]
    assert http.get("/v1/processors?marker=node-9/pcpu/0").status_code == 400


def test_a_client_reads_processors_as_the_pool_has_them(pool, serve, held):
    with Client(serve(pool)) as client:
        (processor,) = client.processors(host=["node-2"])
        assert (processor.background, processor.foreground) == (
            client.gang(held.gang_uuid, "all").process_list[0],
            None,
        )
        assert processor.background.gang_uuid == held.gang_uuid
