"""The tests of two tenants and an operator that need only `openstack`, and run on any cloud, applied to this one."""

import subprocess
import sys

import pytest

from support.cloud.site import CLOUD

from .conftest import REPOSITORY, pool_environment

pytestmark = [pytest.mark.timeout(1800)]

TESTS = "tests/devstack/test_tenants.py"
TIMEOUT_S = 1700.0


def test_neither_of_two_tenants_sees_the_other_and_an_operator_drains_inspects_and_purges(api, tmp_path):
    environment = pool_environment(api) | {"OS_CLOUD": CLOUD, "FPGA_POOL_CONF": str(api.pool_file)}
    results = f"--basetemp={tmp_path / 'tests'}"
    command = [sys.executable, "-m", "pytest", TESTS, results, "-q", "-p", "no:cacheprovider", "--durations=5"]
    with (tmp_path / "log").open("w+") as log:
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log, timeout=TIMEOUT_S)
        log.seek(0)
        said = log.read()
    print(said)
    assert done.returncode == 0, said[-4000:]
    assert "skipped" not in said
