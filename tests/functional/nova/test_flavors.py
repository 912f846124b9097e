"""The flavor commands with Nova's own API."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from fpga_pool.cli.admin.main import ManageApp
from support.servers.server import free_port

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # by openstacksdk itself

SIZE = ("--ram", "512", "--disk", "1", "--vcpus", "1")


class NovaApi:
    """A separate nova-api; tokens consist of the caller's roles."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/v2.1"

    def request(self, method, path, body=None):
        headers = {"OpenStack-API-Version": "compute 2.86", "X-Auth-Token": "admin,specs_writer"}
        return requests.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=180)

    def flavors(self):
        return {flavor["name"]: flavor for flavor in self.request("GET", "/flavors/detail").json()["flavors"]}


@pytest.fixture(scope="module")
def nova(tmp_path_factory):
    port = free_port()
    log = tmp_path_factory.mktemp("nova") / "api.log"
    script = Path(__file__).parent / "api_server.py"
    with log.open("w") as complaints:
        process = subprocess.Popen(
            [sys.executable, str(script), str(port)], stdout=subprocess.PIPE, stderr=complaints, text=True
        )
    try:
        assert process.stdout.readline() == "ready\n", log.read_text()
        yield NovaApi(port)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def flavor(monkeypatch):
    """Run `fpga-pool-manage flavor`; return its exit status, stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)

    def run(*words, nova=None, roles="admin,specs_writer"):
        if nova is not None:
            for name, value in {"AUTH_TYPE": "admin_token", "ENDPOINT": nova.url, "TOKEN": roles}.items():
                monkeypatch.setenv(f"OS_{name}", value)
        out, err = io.StringIO(), io.StringIO()
        status = ManageApp(stdout=out, stderr=err).run(["flavor", *words])
        return status, out.getvalue(), err.getvalue()

    return run


def test_a_created_flavor_is_whole_and_right(flavor, nova):
    status, out, err = flavor(
        "create", "f1.sha", "--function", "sha256", "--count", "2", *SIZE, "-f", "json", nova=nova
    )
    assert (status, err) == (0, "")
    assert json.loads(out)["resources:CUSTOM_FPGA_SLOT"] == "2"
    made = nova.flavors()["f1.sha"]
    assert (made["ram"], made["disk"], made["vcpus"]) == (512, 1, 1)
    assert made["extra_specs"] == {
        "fpga_pool:function": "sha256",
        "fpga_pool:count": "2",
        "resources:CUSTOM_FPGA_SLOT": "2",
        "trait:CUSTOM_FPGA_FUNCTION_SHA256": "required",
    }
    assert flavor("check", "f1.sha", nova=nova) == (0, "no problems found\n", "")


def test_slots_of_several_cards_are_asked_for_in_groups_that_nova_takes(flavor, nova):
    words = ("--function", "optical_flow", "--count", "2", "--spread", "apart", "--private", *SIZE)
    assert flavor("create", "f1.apart", *words, nova=nova)[0] == 0
    assert flavor("check", "f1.apart", nova=nova) == (0, "no problems found\n", "")


def test_what_the_catalogue_cannot_give_is_refused_before_there_is_a_flavor(flavor, nova):
    status, _, complaint = flavor("create", "f1.unknown", "--function", "sha512", *SIZE, nova=nova)
    assert status == 2
    assert "'sha512' is not in the catalogue; it has aes, " in complaint
    assert "f1.unknown" not in nova.flavors()


def test_a_topology_is_for_several_slots(flavor, nova):
    words = ("--function", "sha256", "--topology", "ring", *SIZE)
    status, _, complaint = flavor("create", "f1.ring", *words, nova=nova)
    assert status == 2
    assert "fpga_pool:topology: 'ring' has no effect on 1 slot" in complaint
    assert "f1.ring" not in nova.flavors()
    assert flavor("create", "f1.ring", "--count", "4", "--spread", "host", *words, nova=nova)[0] == 0
    assert nova.flavors()["f1.ring"]["extra_specs"]["fpga_pool:topology"] == "ring"
    assert flavor("check", "f1.ring", nova=nova) == (0, "no problems found\n", "")


def test_a_name_that_is_taken_is_told_and_the_flavor_kept(flavor, nova):
    assert flavor("create", "f1.twice", "--function", "aes", *SIZE, nova=nova)[0] == 0
    status, _, complaint = flavor("create", "f1.twice", "--function", "gmm", *SIZE, nova=nova)
    assert (status, complaint) == (1, "fpga-pool-manage: Flavor with name f1.twice already exists.\n")
    assert nova.flavors()["f1.twice"]["extra_specs"]["fpga_pool:function"] == "aes"


def test_check_finds_what_was_written_by_hand(flavor, nova):
    private = {"name": "f1.hand", "ram": 512, "disk": 1, "vcpus": 1, "os-flavor-access:is_public": False}
    made = nova.request("POST", "/flavors", {"flavor": private}).json()["flavor"]["id"]
    specs = {"fpga_pool:function": "aes", "resources:CUSTOM_FPGA_SLOT": "1"}
    assert nova.request("POST", f"/flavors/{made}/os-extra_specs", {"extra_specs": specs}).status_code == 200
    assert flavor("check", nova=nova) == (
        1,
        "f1.hand: trait:CUSTOM_FPGA_FUNCTION_AES: missing, so Placement may allocate slots that cannot hold aes; "
        "expected 'required'\n",
        "",
    )


def test_nova_refuses_wrong_values_with_our_sentence(nova):
    made = nova.request("POST", "/flavors", {"flavor": {"name": "f1.wrong", "ram": 512, "disk": 1, "vcpus": 1}}).json()
    answer = nova.request(
        "POST", f"/flavors/{made['flavor']['id']}/os-extra_specs", {"extra_specs": {"fpga_pool:topology": "star"}}
    )
    assert answer.status_code == 400
    assert answer.json()["badRequest"]["message"] == (
        "fpga_pool:topology: 'star' is invalid; expected any, line or ring"
    )


def test_a_flavor_that_cannot_be_given_its_extra_specs_is_removed_again(flavor, nova):
    status, _, complaint = flavor("create", "f1.half", "--function", "aes", *SIZE, roles="admin", nova=nova)
    assert status == 1
    assert "os_compute_api:os-flavor-extra-specs:create" in complaint
    assert "f1.half" not in nova.flavors()


def test_without_a_cloud_it_says_where_one_is_named(flavor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    status, _, complaint = flavor("check")
    assert status == 2
    assert complaint.endswith("; set OS_CLOUD, or source an openrc file\n")


def test_a_flavor_of_a_tier_needs_no_function_and_passes_the_check(flavor, nova):
    words = ("--tier", "background", "--cpu-usage", "60", "--ram", "512", "--disk", "1", "--vcpus", "3")
    assert flavor("create", "f1.behind", *words, nova=nova)[0] == 0
    assert nova.flavors()["f1.behind"]["extra_specs"] == {
        "fpga_pool:tier": "background",
        "fpga_pool:cpu_usage": "60",
        "resources:CUSTOM_FPGA_BACKGROUND_PCPU": "3",
    }
    assert flavor("check", "f1.behind", nova=nova)[0] == 0
    status, _, complaint = flavor("create", "f1.nothing", *SIZE, nova=nova)
    assert status != 0
    assert "--function: missing; give --function, --tier or both" in complaint
