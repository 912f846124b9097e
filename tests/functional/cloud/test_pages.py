"""Commands of `openstack` in the documentation, run as the administrator of a real cloud."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from support.pages import Command, pages, path_of, row_of, run, table

from .conftest import pool_environment

pytestmark = [pytest.mark.timeout(900)]

THIS_TEST = "functional/cloud/test_pages.py"
TIMEOUT_S, CLEAN_TIMEOUT_S = 700.0, 180.0
ROWS = table()
SHOWN = {
    name: [one for one in shown if (row := row_of(name, one, ROWS)) and row.test == THIS_TEST]
    for name, shown in pages().items()
}
#: Commands that prepare what a page presupposes.
BEFORE = {
    "admin/gangs": ["cp $IMAGE gang.qcow2"],
    "admin/nova": ["openstack project create research"],
    "admin/placement": ["openstack project create --or-show service"],
    "admin/policy": ["openstack project create --or-show service"],
}
#: Commands that remove objects which would interfere with other tests in this cloud.
AFTER = (
    "openstack service delete PAGE",
    "openstack server delete --wait first",
    "openstack server delete --wait moving",
)


@pytest.fixture(scope="module")
def cloud(all_in_one):
    """The cloud with its API running, which the script of the documentation does not start."""
    started = all_in_one.run("restart", "fpga-pool-api")
    assert started.returncode == 0, started.stderr
    return all_in_one


@pytest.mark.parametrize("name", [name for name, shown in SHOWN.items() if shown])
def test_a_page_shows_commands_that_the_cloud_takes(name, cloud, tmp_path):
    """The account `fpga_pool` and the service `fpga` already exist, so each page creates others under its own name."""
    own = name.replace("/", "-")
    environment = pool_environment(cloud) | {"IMAGE": str(cloud.directory / "hello.qcow2")}
    todo = [Command(0, text, "") for text in BEFORE.get(name, ())]
    for one in SHOWN[name]:
        text = re.sub(r"\bfpga(?= public|$)", "page", re.sub("fpga[_-]pool", own, one.text))
        todo.append(replace(one, text=text))
    (tmp_path / ".venv-cloud").symlink_to(cloud.programs.parent)
    try:
        assert run(path_of(name), tmp_path, todo, pool=False, timeout_s=TIMEOUT_S, extra=environment) == []
    finally:
        for text in AFTER:
            command = [shutil.which("env"), *text.replace("PAGE", own).split()]
            subprocess.run(command, env=environment, capture_output=True, timeout=CLEAN_TIMEOUT_S, check=False)
