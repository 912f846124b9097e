"""Machines with accelerators on a cloud that was set up by others, such as DevStack."""

import hashlib
import os
import subprocess
from collections import Counter

import openstack
import pytest

from fpga_pool.client import Client
from fpga_pool.model.objects.pool import SlotState

#: openstacksdk warns of its own deprecations.
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

SLOTS = "CUSTOM_FPGA_SLOT"


def providers(cloud):
    """Return what the pool's providers have: (name, slots, slots in use) each."""
    answer = cloud.placement.get("/resource_providers?required=CUSTOM_OWNER_FPGA_POOL", microversion="1.29")
    found = []
    for provider in answer.json()["resource_providers"]:
        path = f"/resource_providers/{provider['uuid']}"
        inventories = cloud.placement.get(f"{path}/inventories", microversion="1.29").json()["inventories"]
        usages = cloud.placement.get(f"{path}/usages", microversion="1.29").json()["usages"]
        found.append((provider["name"], inventories[SLOTS]["total"], usages[SLOTS]))
    return found


def allocated(cloud, server):
    """Return how many slots Placement has allocated to a machine."""
    answer = cloud.placement.get(f"/allocations/{server.id}", microversion="1.28").json()["allocations"]
    return sum(given["resources"].get(SLOTS, 0) for given in answer.values())


def loaded(pool, function="sha256"):
    """Return the names of the slots in which a function is ready: a slot keeps it when its machine has gone."""
    return {slot.name for slot in pool.slots() if slot.function == function and slot.state is SlotState.READY}


def unused(cloud, eventually):
    """Wait until no machine has a slot, and return how many there are."""
    eventually(lambda: all(used == 0 for _, _, used in providers(cloud)))
    return sum(total for _, total, _ in providers(cloud))


def test_placement_has_the_slots_of_the_pool(cloud, pool):
    slots = pool.slots()
    assert slots
    found = providers(cloud)
    assert sum(total for _, total, _ in found) == len(slots)
    for slot in slots:
        assert any(name.startswith(f"{slot.host}") and name.endswith(f":{slot.kind}") for name, _, _ in found)


def test_each_host_is_up(cloud, pool):
    hosts = {service.host for service in cloud.compute.services(binary="nova-compute")}
    assert {slot.host for slot in pool.slots()} <= hosts


def test_a_machine_is_active_when_its_slot_is_loaded(cloud, pool, flavor, boot, active, eventually):
    unused(cloud, eventually)
    (server,) = active(boot(flavor("sha256")))
    assert allocated(cloud, server) == 1
    assert any(name.startswith(f"{server.compute_host}/") for name in loaded(pool))
    cloud.compute.delete_server(server)
    cloud.compute.wait_for_delete(server)
    unused(cloud, eventually)


def test_several_slots_of_one_machine_are_on_one_card(cloud, pool, flavor, boot, active, eventually):
    unused(cloud, eventually)
    (server,) = active(boot(flavor("sha256", 2)))
    assert allocated(cloud, server) == 2
    cards = Counter(name.rpartition("/")[0] for name in loaded(pool))
    assert max(cards.values()) >= 2


def test_boots_at_once_fill_all_slots_and_one_more_is_refused(cloud, pool, flavor, boot, active, eventually):
    total = unused(cloud, eventually)
    servers = active(*[boot(flavor("sha256")) for _ in range(total)])
    assert len(loaded(pool)) == total
    assert sum(allocated(cloud, server) for server in servers) == total
    surplus = boot(flavor("sha256"))
    with pytest.raises(openstack.exceptions.ResourceFailure):
        cloud.compute.wait_for_server(surplus, wait=300)


def test_a_stopped_machine_starts_again_with_a_slot(cloud, pool, flavor, boot, active, eventually):
    unused(cloud, eventually)
    (server,) = active(boot(flavor("sha256")))
    cloud.compute.stop_server(server)
    cloud.compute.wait_for_server(server, status="SHUTOFF", wait=300)
    cloud.compute.start_server(server)
    (server,) = active(server)
    assert allocated(cloud, server) == 1
    assert any(name.startswith(f"{server.compute_host}/") for name in loaded(pool))


def test_a_resize_changes_the_number_of_slots(cloud, pool, flavor, boot, active, eventually):
    unused(cloud, eventually)
    (server,) = active(boot(flavor("sha256")))
    cloud.compute.resize_server(server, flavor("sha256", 2))
    cloud.compute.wait_for_server(server, status="VERIFY_RESIZE", wait=300)
    cloud.compute.confirm_server_resize(server)
    active(server)
    assert allocated(cloud, server) == 2
    assert len(loaded(pool)) >= 2


def test_a_shelved_machine_holds_no_slot(cloud, pool, flavor, boot, active, eventually):
    unused(cloud, eventually)
    (server,) = active(boot(flavor("sha256")))
    cloud.compute.shelve_server(server)
    cloud.compute.wait_for_server(server, status="SHELVED_OFFLOADED", wait=300)
    unused(cloud, eventually)
    cloud.compute.unshelve_server(server)
    active(server)
    assert allocated(cloud, server) == 1


def test_a_function_that_fits_one_kind_finds_its_slot_while_others_run(cloud, pool, flavor, boot, active, eventually):
    unused(cloud, eventually)
    active(*[boot(flavor("sha256")) for _ in range(sum(slot.kind == "small" for slot in pool.slots()))])
    (server,) = active(boot(flavor("optical_flow")))
    assert allocated(cloud, server) == 1


def test_a_batch_runs_on_slots_that_no_machine_has(cloud, pool, endpoint, tmp_path, eventually):
    unused(cloud, eventually)
    files = [tmp_path / f"{number}.bin" for number in range(4)]
    for file in files:
        file.write_bytes(os.urandom(100_000))
    with Client(endpoint) as client:
        batch = client.run("sha256", files, requester=pool.hosts()[0].name)
    digests = [job.result.read_text().strip() for job in batch.jobs]
    assert digests == [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


@pytest.mark.skipif("FPGA_POOL_RESTART" not in os.environ, reason="FPGA_POOL_RESTART does not say how services restart")
def test_machines_and_slots_survive_a_restart_of_the_pool(cloud, pool, flavor, boot, active, eventually):
    """FPGA_POOL_RESTART is a command that restarts the scheduler and all agents."""
    unused(cloud, eventually)
    (server,) = active(boot(flavor("sha256")))
    subprocess.run(os.environ["FPGA_POOL_RESTART"], shell=True, check=True, timeout=120)
    eventually(lambda: any(name.startswith(f"{server.compute_host}/") for name in loaded(pool)))
    assert allocated(cloud, server) == 1
    active(server, boot(flavor("sha256")))
