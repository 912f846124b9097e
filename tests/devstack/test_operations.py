"""Actions of an operator: flavors, refusals, consistency of the pool with Nova, restarts of services."""

import json
import os
import subprocess

import openstack
import pytest

from support.waiting import wait_until

from .conftest import COMMAND_TIMEOUT_S, a_name, cloud_name
from .test_pool import assert_has

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

#: Command that restarts the service {}.
RESTART = os.environ.get("FPGA_POOL_RESTART", "")


def services(cloud):
    """Return the services to restart: those of the pool, and others that are configured."""
    agents = [f"fpga-pool-agent-{host.name}" for host in cloud.pool.hosts()]
    others = os.environ.get("FPGA_POOL_RESTART_ALSO", "").split()
    return ["fpga-pool-scheduler", "fpga-pool-api", *agents, *others]


def test_a_flavor_is_made_checked_and_found_wrong(cloud, manage):
    name, login = a_name("flavor"), ("--os-cloud", cloud_name())
    size = ("--ram", "64", "--disk", "1", "--vcpus", "1")
    manage("flavor", "create", name, "--function", "sha256", "--count", "2", *size, *login)
    flavor = cloud.compute.find_flavor(name, ignore_missing=False)
    try:
        assert "no problems found" in manage("flavor", "check", name, *login)
        cloud.compute.update_flavor_extra_specs_property(flavor, "fpga_pool:count", "3")
        assert f"{name}: " in manage("flavor", "check", name, *login, code=1)
    finally:
        cloud.compute.delete_flavor(flavor)


def test_a_refusal_is_explained_for_each_host(cloud, flavor, boot, manage):
    cloud.free()
    server = boot(flavor("sha256", 64))
    with pytest.raises(openstack.exceptions.ResourceFailure):
        cloud.compute.wait_for_server(server, wait=300)
    assert "No valid host was found" in cloud.compute.get_server(server).fault["message"]
    rows = json.loads(manage("explain", server.id, "--os-cloud", cloud_name(), "-f", "json"))
    assert {row["host"] for row in rows} == {slot.host for slot in cloud.pool.slots()}
    assert not any(row["passes"] for row in rows)
    assert all("64 requested on one card" in row["why"] for row in rows)


def test_the_pool_agrees_with_nova_and_placement(cloud, flavor, boot, manage):
    cloud.free()
    cloud.active(boot(flavor("sha256")))
    assert "no problems found" in manage("audit")


@pytest.mark.skipif(not RESTART, reason="FPGA_POOL_RESTART does not say how services restart")
def test_machines_keep_their_slots_while_every_service_restarts(cloud, flavor, boot):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256")))
    before = assert_has(cloud, server, 1).keys()
    for service in services(cloud):
        subprocess.run(RESTART.replace("{}", service), shell=True, check=True, timeout=COMMAND_TIMEOUT_S)
        wait_until(lambda: _held(cloud, server) == before, f"the machine has its slot after a restart of {service}")
    wait_until(lambda: all(service.up for service in cloud.pool.services()), "all services are up")
    # A nova-compute that starts fails the pending builds that it finds; it reports when it has started.
    before = _reported(cloud)
    wait_until(lambda: not before & _reported(cloud), "each nova-compute reports")
    (another,) = cloud.active(boot(flavor("sha256")))
    assert_has(cloud, another, 1)


def _reported(cloud):
    found = cloud.compute.services(binary="nova-compute")
    return {(service.id, service.updated_at) for service in found if service.state == "up"}


def _held(cloud, server):
    try:
        return cloud.held(server).keys()
    except Exception:  # the API, or a service that it calls, has just been restarted
        return None
