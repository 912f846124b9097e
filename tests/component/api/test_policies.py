"""The rules of the policy in detail, with tokens that Keystone's own middleware validates, and policy files."""

import os
import time

import pytest
from flask import g
from oslo_config import cfg
from oslo_policy.generator import generate_sample
from playwright.sync_api import expect
from werkzeug.test import Client

from fpga_pool.api.app import create_app
from fpga_pool.api.context import Tenant
from fpga_pool.api.http.server import ApiServer
from fpga_pool.api.operation import chosen_project
from fpga_pool.api.policies import make_enforcer
from fpga_pool.api.stack import make_application
from fpga_pool.model.exceptions import Forbidden, InvalidInput
from support.browser import PATIENCE_MS, running_browser, watched_page
from support.permissions import ALLOWED, BODIES, JOB
from support.personas import OTHER_PROJECT, PROJECT, keystone_configuration, known_tokens
from support.waiting import wait_until


@pytest.fixture
def configuration(tmp_path):
    return keystone_configuration(tmp_path)


@pytest.fixture
def keystone():
    with known_tokens():
        yield


@pytest.fixture
def api(pool, keystone, configuration):
    return Client(make_application(configuration, pool, keystone=True))


@pytest.mark.parametrize(("persona", "may"), [("member", False), ("manager", True), ("admin", True)])
def test_a_priority_above_0_is_for_managers_and_a_lower_one_for_members(api, persona, may):
    headers = {"X-Auth-Token": persona}
    for priority in (-3, 0, 1):
        allowed = may or priority <= 0
        for path in ("/v1/batches", "/v1/plans"):
            answer = api.post(path, json={"jobs": [JOB], "priority": priority}, headers=headers)
            assert (answer.status_code in (200, 201)) is allowed, answer.text
    uuid = api.post("/v1/batches", json={"jobs": [JOB], "held": True}, headers=headers).json["batch"]["uuid"]
    for priority in (1, -3):
        answer = api.patch(f"/v1/batches/{uuid}", json={"priority": priority}, headers=headers)
        if may or priority < 0:
            assert (answer.status_code, answer.json["batch"]["priority"]) == (200, priority)
        else:
            assert answer.json["errors"][0]["detail"].startswith("fpga_pool:raise_priority is not allowed")
    assert api.patch(f"/v1/batches/{uuid}", json={"priority": 101}, headers=headers).status_code == 400


@pytest.mark.parametrize("path", ["/", "/v1/", "/v1/openapi.json", "/dashboard/", "/dashboard/js/main.js"])
def test_documents_of_versions_and_the_files_of_the_dashboard_are_public(api, path):
    assert api.get(path).status_code == 200


def test_a_design_of_another_project_is_not_found_before_it_is_public_and_is_decided_on_by_admins_alone(api):
    tokens = {who: {"X-Auth-Token": who} for who in ("member", "other", "manager", "admin")}
    created = api.post("/v1/designs", json=BODIES["create_design"], headers=tokens["member"]).json["design"]
    path = f"/v1/designs/{created['uuid']}"
    assert (created["state"], created["public"], created["size_bytes"]) == ("SUBMITTED", False, 5)
    assert api.get("/v1/designs", headers=tokens["other"]).json["designs"] == []
    for method, where in (("GET", path), ("GET", f"{path}/events"), ("DELETE", path)):
        assert api.open(where, method=method, headers=tokens["other"]).status_code == 404
    for decision in ({"state": "APPROVED"}, {"public": True}):
        for who in ("member", "manager"):
            assert api.patch(path, json=decision, headers=tokens[who]).status_code == 403
    assert api.get(f"{path}/bitstream", headers=tokens["member"]).status_code == 403
    assert api.patch(path, json={"public": True}, headers=tokens["admin"]).status_code == 409
    assert api.get(f"{path}/bitstream", headers=tokens["admin"]).json["bitstream"] == "aGVsbG8="
    answer = api.patch(path, json={"state": "APPROVED", "public": True, "reason": "checked"}, headers=tokens["admin"])
    assert [answer.json["design"][name] for name in ("state", "public", "reason")] == ["APPROVED", True, "checked"]
    assert api.get(path, headers=tokens["other"]).status_code == 200
    assert api.delete(path, headers=tokens["other"]).status_code == 404
    assert api.delete(path, headers=tokens["member"] | {"If-Match": '"0"'}).status_code == 412
    assert api.delete(path, headers=tokens["member"]).status_code == 200
    assert api.get(path, headers=tokens["member"]).status_code == 404


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"name": "Mine"}, "name: expected 1 to 40 lower-case letters"),
        ({"simulates": "none"}, "simulates: 'none' is not in the catalogue"),
        ({"kind": "huge"}, "kind: no board 'kintex7' with slots of kind 'huge'"),
        ({"luts": 10**9}, "fits no slot of this board"),
        ({"b_s_per_byte": 0}, "b_s_per_byte: expected seconds per byte above 0"),
        ({"bitstream": ""}, "bitstream: expected a bitstream of at most 8388608 bytes"),
        ({"bitstream": "%"}, "bitstream"),
        ({"owner": "me"}, "unknown"),
    ],
)
def test_an_impossible_design_is_refused_with_what_is_wrong(api, changed, complaint):
    answer = api.post("/v1/designs", json=BODIES["create_design"] | changed, headers={"X-Auth-Token": "member"})
    assert answer.status_code == 400
    assert complaint in answer.json["errors"][0]["detail"]


def test_events_are_those_of_the_own_project_and_those_of_the_pool_are_for_admins(api):
    for who in ("member", "other"):
        for noun, nouns in (("batch", "batches"), ("gang", "gangs"), ("pipeline", "pipelines"), ("task", "tasks")):
            api.post(f"/v1/{nouns}", json=BODIES[f"create_{noun}"], headers={"X-Auth-Token": who})
    slot = api.get("/v1/slots", headers={"X-Auth-Token": "admin"}).json["slots"][0]["uuid"]
    api.patch(f"/v1/slots/{slot}", json={"drain": True}, headers={"X-Auth-Token": "admin"})

    def seen(who, query=""):
        answer = api.get(f"/v1/events?limit=1000{query}", headers={"X-Auth-Token": who})
        found = answer.json.get("events", [])
        return answer.status_code, {event["project_id"] for event in found}, {event["kind"] for event in found}

    work = {"batch", "gang", "job", "pipeline", "task"}
    for who in ("reader", "member", "manager", "admin"):
        assert seen(who) == (200, {"a" * 32}, work)
        assert seen(who, "&kind=slot&kind=host") == (200, set(), set())
        own = seen(who, f"&project_id={'a' * 32}")
        assert own == seen(who)
        for other in ("b" * 32, "all"):
            assert (seen(who, f"&project_id={other}")[0] == 200) is (who == "admin")
    assert seen("other") == (200, {"b" * 32}, work)
    assert seen("admin", f"&project_id={'b' * 32}") == seen("other")
    assert seen("admin", "&project_id=all") == (200, {"", "a" * 32, "b" * 32}, {*work, "slot"})


def test_headers_of_identity_from_outside_are_not_believed(api):
    forged = {"X-Auth-Token": "reader", "X-Roles": "admin", "X-Project-Id": "b" * 32, "X-Identity-Status": "Confirmed"}
    assert api.get("/v1/slots", headers=forged).status_code == 403
    assert api.get("/v1/slots", headers={"X-Identity-Status": "Confirmed", "X-Roles": "admin"}).status_code == 401


@pytest.fixture
def api_with_rule(pool, keystone, configuration, tmp_path):
    """Return a function that makes an API whose policy file has the given rule."""

    def make(rule):
        (tmp_path / "policy.yaml").write_text(f"{rule}\n")
        with (tmp_path / "api.conf").open("a") as file:
            file.write(f"[oslo_policy]\npolicy_file = {tmp_path}/policy.yaml\n")
        configuration.reload_config_files()
        return Client(make_application(configuration, pool, keystone=True))

    return make


def test_who_may_not_read_an_object_may_not_read_its_events(api_with_rule):
    api = api_with_rule('"fpga_pool:show_host": "role:admin"')
    statuses = [
        api.get(path, headers={"X-Auth-Token": who}).status_code
        for who in ("reader", "admin")
        for path in ("/v1/hosts/node-1", "/v1/hosts/node-1/events")
    ]
    assert statuses == [403, 403, 200, 200]


def test_who_may_purge_but_not_end_work_of_others_purges_the_own_project_alone(api_with_rule):
    api = api_with_rule('"fpga_pool:purge_work": "role:manager"')

    def status(who, **project):
        body = {"ended_before": "1970-01-01T00:00:00Z", "dry_run": True} | project
        return api.post("/v1/purges", json=body, headers={"X-Auth-Token": who}).status_code

    assert status("manager", project_id=PROJECT) == 200
    assert [status("manager"), status("manager", project_id=OTHER_PROJECT), status("system manager")] == [403] * 3
    for who in ("admin", "system admin"):
        assert [status(who), status(who, project_id=OTHER_PROJECT)] == [200, 200]


def test_a_token_of_a_domain_alone_is_not_one_of_all_projects(pool):
    """Older versions of oslo.policy accept such a token if `enforce_scope` is false."""
    with create_app(pool).test_request_context():
        g.tenant = Tenant("", "u")
        with pytest.raises(Forbidden, match=r"^a token of a project, or of system scope, is required$"):
            chosen_project(None)
        assert chosen_project("all") is None
        g.tenant = Tenant("", "u", of_system=True)
        assert chosen_project(None) is None


def test_the_sample_of_policies_describes_every_operation(tmp_path):
    path = tmp_path / "policy.yaml"
    generate_sample(["--namespace", "fpga_pool", "--output-file", str(path)], cfg.ConfigOpts())
    sample = path.read_text()
    assert [name for name in ALLOWED if f'\n#"fpga_pool:{name}": ' not in sample] == []


def test_a_policy_file_overrides_a_rule(api_with_rule, tmp_path):
    api = api_with_rule('"fpga_pool:list_slots": "role:reader"')
    assert api.get("/v1/slots", headers={"X-Auth-Token": "reader"}).status_code == 200
    assert api.patch("/v1/slots/x", json={"drain": True}, headers={"X-Auth-Token": "reader"}).status_code == 403
    # A changed file is read again. Earlier decisions are cached for a moment only.
    (tmp_path / "policy.yaml").write_text('"fpga_pool:list_slots": "role:nobody"\n')
    wait_until(lambda: api.get("/v1/slots", headers={"X-Auth-Token": "reader"}).status_code == 403, "the file is read")


def test_the_request_id_of_another_service_is_kept_beside_the_own(api):
    answer = api.get("/v1/functions", headers={"X-Auth-Token": "reader", "X-OpenStack-Request-ID": "req-" + "0" * 36})
    assert answer.headers["x-openstack-request-id"].startswith("req-")


def test_the_dashboard_asks_for_a_token_and_shows_what_it_may_see(pool, keystone, configuration):
    server = ApiServer(make_application(configuration, pool, keystone=True), port=0, authenticates=True)
    url = server.start()
    try:
        with running_browser() as browser, watched_page(browser, url) as dashboard:
            page = dashboard.page
            dashboard.open("pool")
            page.get_by_label("Token").fill("no such token")
            page.keyboard.press("Enter")
            page.get_by_label("Token").fill("reader")
            page.keyboard.press("Enter")
            refusal = page.get_by_text("your roles do not allow")
            expect(refusal).to_be_visible(timeout=PATIENCE_MS)
            page.get_by_role("button", name="Sign out").click()
            page.get_by_label("Token").fill("admin")
            page.keyboard.press("Enter")
            expect(page.locator(".slot")).to_have_count(len(pool.slots()), timeout=PATIENCE_MS)
            expect(refusal).to_be_hidden()
            assert page.evaluate("[Object.values(sessionStorage), localStorage.length, document.cookie]") == [
                ["admin"],
                0,
                "",
            ]
            # The browser logs the 401 itself. The 403 of the list of slots is answered to the page's worker.
            refused = {text.rpartition(" of ")[2] for text in dashboard.complaints}
            assert refused == {"401 (UNAUTHORIZED)"}
            dashboard.complaints.clear()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "nosuch.yaml does not exist"),
        (
            '"fpga_pool:list_slotz": "role:admin"',
            "no operation has a rule fpga_pool:list_slotz; did you mean fpga_pool:",
        ),
        ('"fpga_pool:list_slots": "rule:nosuch"', "Policies ['fpga_pool:list_slots'] are not well defined"),
        ('"fpga_pool:list_slots": "role:reader or admin"', "Failed to understand rule admin"),
        ('"fpga_pool:list_slots: [', "expected YAML that gives each name a rule: while scanning a quoted scalar"),
        ("- fpga_pool:list_slots", "expected YAML that gives each name a rule: "),
        ('"fpga_pool:list_slots": 5', "expected YAML that gives each name a rule: "),
    ],
)
def test_a_policy_file_that_cannot_be_meant_so_stops_the_start(tmp_path, caplog, text, complaint):
    name = "nosuch.yaml" if text is None else "policy.yaml"
    (tmp_path / "policy.yaml").write_text(text or "")
    conf = with_policy_file(tmp_path, name)
    with pytest.raises(InvalidInput) as refused:
        make_enforcer(conf)
    assert str(refused.value).startswith(f"[oslo_policy] policy_file: {complaint}")
    assert "\n" not in str(refused.value)
    assert "Traceback" not in caplog.text


def test_a_policy_file_that_is_broken_while_the_api_runs_leaves_the_rules_as_they_were(pool, tmp_path, caplog):
    file = tmp_path / "policy.yaml"
    file.write_text('"fpga_pool:list_hosts": "role:visitor"\n')
    api = create_app(pool, enforcer=make_enforcer(with_policy_file(tmp_path, file.name))).test_client()

    def statuses():
        return [api.get("/v1/hosts", headers={"X-Roles": role}).status_code for role in ("visitor", "reader")]

    assert statuses() == [200, 403]
    file.write_text('"fpga_pool:list_hosts: [')
    os.utime(file, (1, time.time() + 10))
    wait_until(lambda: "the previous rules stay in force" in (statuses(), caplog.text)[1], "the file is read")
    assert statuses() == [200, 403]
    file.write_text('"fpga_pool:list_hosts": "role:reader"\n')
    os.utime(file, (1, time.time() + 20))
    wait_until(lambda: statuses() == [403, 200], "the file is followed")


def with_policy_file(directory, name):
    (directory / "api.conf").write_text(f"[oslo_policy]\npolicy_file = {name}\n")
    conf = cfg.ConfigOpts()
    conf([f"--config-file={directory}/api.conf"], project="fpga_pool")
    return conf
