import time
import uuid
from dataclasses import replace

import pytest

from fpga_pool.api.app import create_app
from fpga_pool.model.objects.pool import Lease, LeaseKind
from fpga_pool.model.rest import date


@pytest.fixture
def api(pool):
    return create_app(pool).test_client()


def test_slots_are_listed_by_name(api):
    slots = api.get("/v1/slots").json["slots"]
    assert [slot["name"] for slot in slots] == ["node-1/card-0/r0", "node-2/card-0/r0"]
    assert all("history" not in slot for slot in slots)


def test_slot_is_drained_and_resumed(api):
    path = f"/v1/slots/{api.get('/v1/slots').json['slots'][0]['uuid']}"
    drained = api.patch(path, json={"drain": True, "reason": "fan is loud"}).json["slot"]
    assert (drained["state"], drained["reason"]) == ("DRAINED", "fan is loud")
    assert drained["history"]
    assert api.patch(path, json={"drain": False}).json["slot"]["state"] == "EMPTY"
    assert api.get(path).json["slot"]["drain_requested"] is False


@pytest.mark.parametrize("change", [{}, {"drain": "yes"}, {"drain": True, "state": "EMPTY"}, []])
def test_slot_refuses_other_changes(api, change):
    path = f"/v1/slots/{api.get('/v1/slots').json['slots'][0]['uuid']}"
    assert api.patch(path, json=change).status_code == 400


def test_unknown_slot_is_not_found(api):
    assert api.get(f"/v1/slots/{uuid.UUID(int=1)}").status_code == 404
    assert api.patch("/v1/slots/x", json={"drain": True}).status_code == 404


@pytest.fixture
def leased(api, pool):
    """Return the path of a slot, and a function that leases the slot to a holder."""
    slot = pool.slots()[0]

    def lease(kind, holder, project_id=""):
        fields = {"kind": kind, "holder": holder, "project_id": project_id}
        pool.tx.add(
            Lease(uuid=str(uuid.uuid4()), slot=slot.name, epoch=1, revocable=False, granted_at=1000.0, **fields)
        )

    return f"/v1/slots/{slot.uuid}", lease


def holder(answer):
    return [answer.json["slot"][name] for name in ("held_by", "holder", "holder_project_id")]


def test_a_slot_tells_which_instance_or_task_holds_it(api, leased):
    path, lease = leased
    assert holder(api.get(path)) == [None, "", ""]
    lease(LeaseKind.TASK, "a task", "demo")
    assert holder(api.get(path)) == ["task", "a task", "demo"]
    assert api.get(path).json["slot"]["leased_at"] == "1970-01-01T00:16:40.000000+00:00"


def test_a_slot_of_the_pool_tells_which_job_is_there_or_comes_next(api, leased):
    path, lease = leased
    lease(LeaseKind.POOL, "default")
    assert holder(api.get(path)) == ["pool", "", ""]
    job = {"function": "sha256", "requester": "node-1", "input_bytes": 5}
    batch = api.post("/v1/batches", json={"jobs": [job] * 2}).json["batch"]["uuid"]
    first = api.get(f"/v1/batches/{batch}/jobs").json["jobs"][0]
    assert path.endswith(api.get(f"/v1/slots?host={first['host']}").json["slots"][0]["uuid"])
    assert holder(api.get(path)) == ["pool", first["uuid"], "demo"]


@pytest.fixture
def card(api):
    return f"/v1/cards/{api.get('/v1/cards').json['cards'][0]['uuid']}"


def test_cards_are_listed_by_name_filter_and_page(api, card):
    cards = api.get("/v1/cards").json["cards"]
    assert [(card["name"], card["state"], card["slots"]) for card in cards] == [
        ("node-1/card-0", "in_service", 1),
        ("node-2/card-0", "in_service", 1),
    ]
    assert all("slot_list" not in card for card in cards)
    api.patch(card, json={"drain": True})

    def names(query):
        return [card["name"] for card in api.get(f"/v1/cards?{query}").json["cards"]]

    assert names("state=out_of_service") == names("host=node-1") == names("limit=1") == ["node-1/card-0"]
    assert names("state=IN_SERVICE&state=unreachable") == names("marker=node-1/card-0") == ["node-2/card-0"]
    assert names("sort=name:desc") == ["node-2/card-0", "node-1/card-0"]
    assert names(f"board={cards[0]['board']}&host=node-9") == []


@pytest.mark.parametrize("query", ["state=broken", "marker=node-7/card-0", "sort=state", "limit=0", "function=aes"])
def test_a_list_of_cards_that_cannot_be_right_is_refused(api, query):
    assert api.get(f"/v1/cards?{query}").status_code == 400


def test_a_card_is_drained_and_resumed_with_its_slots_and_shows_who_uses_it(api, card, pool):
    api.post("/v1/batches", json={"jobs": [{"function": "sha256", "requester": "node-1", "input_bytes": 5}]})
    assert api.get(card).json["card"]["user_list"] == ["slot node-1/card-0/r0 has jobs"]
    drained = api.patch(card, json={"drain": True, "reason": "fan is loud"}).json["card"]
    # Its job had not begun and was taken off the slot.
    assert (drained["state"], drained["drain_requested"], drained["user_list"]) == ("out_of_service", True, [])
    assert [(slot["state"], slot["reason"]) for slot in drained["slot_list"]] == [("DRAINED", "fan is loud")]
    resumed = api.patch(card, json={"drain": False}).json["card"]
    assert (resumed["state"], resumed["drain_requested"]) == ("in_service", False)


def test_a_card_is_removed_when_nobody_has_it_any_more(api, card, pool):
    refused = api.delete(card)
    assert (refused.status_code, refused.json["errors"][0]["code"]) == (409, "fpga_pool.conflict")
    assert "not removed, but drained: the agent of node-1 reports them" in refused.json["errors"][0]["detail"]
    assert api.get(card).json["card"]["drain_requested"] is True
    pool.tx.save(replace(pool.tx.host("node-1"), alive=False))
    assert api.get(card).json["card"]["state"] == "unreachable"
    assert api.delete(card).json["card"]["name"] == "node-1/card-0"
    assert api.get(card).status_code == 404
    assert [slot["name"] for slot in api.get("/v1/slots").json["slots"]] == ["node-2/card-0/r0"]


def test_an_unknown_card_is_not_found(api):
    unknown = f"/v1/cards/{uuid.UUID(int=1)}"
    answers = [api.get(unknown), api.delete(unknown), api.patch(unknown, json={"drain": True}), api.get("/v1/cards/x")]
    assert [answer.status_code for answer in answers] == [404] * 4


def test_host_without_a_limit_shows_null(api):
    host = api.get("/v1/hosts").json["hosts"][0]
    assert (host["egress_bps"], host["ingress_bps"]) == (1e9, None)
    assert host["heard_at"] == "1970-01-01T00:16:40.000000+00:00"


def test_bitstreams_are_listed_as_a_host_has_them_and_shown(api):
    missing, sound = api.get("/v1/bitstreams").json["bitstreams"]
    assert (sound["verified"], sound["signer"], sound["sha256"], sound["reason"]) == (True, "key", "ab" * 32, "")
    assert (missing["verified"], missing["size_bytes"], missing["reason"]) == (False, None, "not in the library")
    assert sound["name"] == f"{sound['board']}/small/sha256"
    shown = api.get(f"/v1/bitstreams/{missing['uuid']}?host=node-2").json["bitstream"]
    assert shown == missing | {"host": "node-2"}

    def kinds(query):
        return [one["kind"] for one in api.get(f"/v1/bitstreams?{query}").json["bitstreams"]]

    assert kinds("kind=small&function=sha256") == ["small"]
    assert kinds(f"board={sound['board']}&kind=small&kind=large") == ["large", "small"]
    assert kinds("function=aes") == kinds("board=none") == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/bitstreams?host=node-9", 404), (f"/v1/bitstreams/{uuid.UUID(int=1)}", 404), ("/v1/bitstreams/x", 404),
        ("/v1/bitstreams?size_bytes=1", 400),
    ],
)  # fmt: skip
def test_bitstreams_that_are_not_there(api, path, status):
    assert api.get(path).status_code == status


def test_functions_are_listed(api):
    functions = {one["name"]: one for one in api.get("/v1/functions").json["functions"]}
    assert (functions["sha256"]["slot_kinds"], functions["sha256"]["io_bps"]) == (["small", "large"], 3.2e9)


def test_calibration_of_one_function(api, pool):
    api.post("/v1/batches", json={"jobs": 3 * [{"function": "sha256", "requester": "node-1", "input_bytes": 1000}]})
    pool.has_run(pool.first_jobs())
    (fit,) = api.get("/v1/functions/calibration?function=sha256").json["calibration"]
    assert (fit["function"], fit["runs"]) == ("sha256", 3)
    assert api.get("/v1/functions/calibration?function=x").status_code == 400


def test_one_host_and_one_function_are_shown_by_name(api):
    assert api.get("/v1/hosts/node-1").json["host"]["name"] == "node-1"
    assert api.get("/v1/functions/sha256").json["function"]["name"] == "sha256"


@pytest.mark.parametrize("path", ["/v1/hosts/node-9", "/v1/functions/rot13"])
def test_unknown_names_are_not_found(api, path):
    assert api.get(path).status_code == 404


def test_each_processor_and_service_of_a_list_is_shown_by_its_uuid(api):
    for nouns, noun in (("processors", "processor"), ("services", "service")):
        listed = api.get(f"/v1/{nouns}").json[nouns]
        assert len({one["uuid"] for one in listed}) == len(listed) > 0
        for one in listed:
            assert api.get(f"/v1/{nouns}/{one['uuid']}").json == {noun: one}
        assert api.get(f"/v1/{nouns}/{uuid.UUID(int=1)}").status_code == 404


def test_an_instance_is_shown_with_its_slots_to_its_own_project(api, leased, pool):
    _, lease = leased
    vm = str(uuid.uuid4())
    lease(LeaseKind.INSTANCE, vm, "demo")
    assert api.get(f"/v1/instances/{vm}").json["instance"] == {
        "uuid": vm,
        "project_id": "demo",
        "host": "node-1",
        "slot_list": [
            {
                "name": "node-1/card-0/r0",
                "function": "",
                "leased_at": "1970-01-01T00:16:40.000000+00:00",
                "reason": "",
            }
        ],
    }
    assert api.get(f"/v1/instances/{vm}", headers={"X-Project-Id": "other"}).status_code == 404
    assert api.get(f"/v1/instances/{vm}?project_id=all").status_code == 200


@pytest.mark.parametrize("dry_run", [True, False])
def test_only_what_is_past_is_purged(api, dry_run):
    def purge(before_s):
        return api.post("/v1/purges", json={"ended_before": date(before_s), "dry_run": dry_run})

    refused = purge(time.time() + 60.0)
    complaint = "ended_before: expected a time before the present one, 20"
    assert (refused.status_code, refused.json["errors"][0]["detail"][: len(complaint)]) == (400, complaint)
    assert purge(time.time() - 60.0).status_code == 200
