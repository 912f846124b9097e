"""Limits of projects in a real Keystone: registered, changed for one project, and enforced by the scheduler."""

import configparser
import json
import subprocess

import pytest

from .conftest import COMMAND_TIMEOUT_S, REQUESTER, pool_environment

pytestmark = [pytest.mark.timeout(900)]

SERVICE = "fpga"


@pytest.fixture(scope="module")
def keystones(api):
    """Configure the scheduler to read limits from Keystone, as a user of system scope."""
    given = api.pool_file.read_text()
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(given)
    login = {name: settings["placement"][name] for name in ("auth_type", "auth_url", "username", "password")}
    region = settings["placement"]["region_name"]
    settings["oslo_limit"] = login | {
        "user_domain_id": "default",
        "system_scope": "all",
        "endpoint_service_type": SERVICE,
        "endpoint_region_name": region,
    }
    settings["scheduler"]["limits_from"] = "keystone"
    with api.pool_file.open("w") as file:
        settings.write(file)
    restarted = api.run("restart", "fpga-pool-scheduler")
    assert restarted.returncode == 0, restarted.stderr

    def limit(*words):
        command = [str(api.programs / "openstack"), *words, "--service", SERVICE, "--region", region]
        environment = {**pool_environment(api), "OS_USERNAME": "admin", "OS_SYSTEM_SCOPE": "all"}
        environment.pop("OS_PROJECT_NAME", None)
        environment.pop("OS_PROJECT_DOMAIN_ID", None)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr

    yield limit
    api.pool_file.write_text(given)
    assert api.run("restart", "fpga-pool-scheduler").returncode == 0


def test_a_project_has_the_limits_that_keystone_says(keystones, openstack, admin, tmp_path):
    keystones("registered", "limit", "create", "--default-limit", "2", "jobs")
    keystones("registered", "limit", "create", "--default-limit", "3", "input_mib")
    keystones("limit", "create", "--project", "demo", "--resource-limit", "1", "jobs")
    code, shown, said = openstack("demo", "quota", "show", "-f", "json")
    assert code == 0, said
    limits = {row["resource"]: (row["limit"], row["default"]) for row in json.loads(shown)}
    assert (limits["jobs"], limits["input_bytes"]) == ((1, False), (3 << 20, True))
    assert limits["task_slots"] == (1000, True)  # it is not registered

    file = tmp_path / "input"
    file.write_bytes(b"x")
    work = ("batch", "create", "--function", "sha256", "--requester", REQUESTER)
    code, _, said = openstack("demo", *work, file, file)
    assert (code, "jobs: 2 requested, 0 of 1 used" in said) == (1, True), said
    code, _, said = openstack("demo", *work, file)
    assert code == 0, said

    project = admin.id_of("identity", "/projects", "demo")
    code, _, said = openstack("admin", "quota", "set", project, "--jobs", "5")
    assert (code, "change them with `openstack limit`" in said) == (1, True), said
