import uuid

import pytest

from fpga_pool.api.app import create_app


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


def test_host_without_a_limit_shows_null(api):
    host = api.get("/v1/hosts").json["hosts"][0]
    assert (host["egress_bps"], host["ingress_bps"]) == (1e9, None)
    assert host["heard_at"] == "1970-01-01T00:16:40.000000+00:00"


def test_functions_are_listed(api):
    (function,) = api.get("/v1/functions").json["functions"]
    assert (function["name"], function["slot_kinds"], function["io_bps"]) == ("sha256", ["small", "large"], None)


def test_calibration_of_one_function(api):
    (fit,) = api.get("/v1/functions/calibration?function=sha256").json["calibration"]
    assert (fit["runs"], fit["fitted_a_s"]) == (3, 0.25)
    assert api.get("/v1/functions/calibration?function=x").status_code == 404


def test_one_host_and_one_function_are_shown_by_name(api):
    assert api.get("/v1/hosts/node-1").json["host"]["name"] == "node-1"
    assert api.get("/v1/functions/sha256").json["function"]["name"] == "sha256"


@pytest.mark.parametrize("path", ["/v1/hosts/node-9", "/v1/functions/rot13"])
def test_unknown_names_are_not_found(api, path):
    assert api.get(path).status_code == 404
