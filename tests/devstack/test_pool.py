"""Machines with accelerators on an existing cloud, such as one of DevStack or tools/all-in-one."""

from collections import Counter

import openstack
import pytest

from fpga_pool.model.extra_specs import Spread
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.links import slot_links
from fpga_pool.model.objects.pool import SlotState
from support.waiting import wait_until

from .conftest import MOST_BOOTS

#: openstacksdk warns of its own deprecations.
pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


def assert_has(cloud, server, count, function="sha256"):
    """Assert that a machine has as many slots in Placement as in the pool, on its host, and loaded."""
    assert cloud.allocated(server) == count
    held = cloud.held(server)
    assert {(slot.host, slot.function, slot.state) for slot in held.values()} == {
        (server.compute_host, function, SlotState.READY)
    }
    assert len(held) == count
    return held


def room(cloud):
    """Return how many machines of one slot fill the cloud, or a host of a large cloud, and boot arguments for it."""
    total, slots = cloud.free(), Counter(slot.host for slot in cloud.pool.slots())
    if total <= MOST_BOOTS:
        return total, {}
    # Many fake guests cost nothing.
    hosts = cloud.hosts(real=False) or cloud.hosts(real=True)
    return slots[hosts[0]], {"host": hosts[0]}


def test_placement_has_the_slots_of_the_pool(cloud):
    slots = cloud.pool.slots()
    assert slots
    found = cloud.providers()
    assert sum(total for _, total, _ in found) == len(slots)
    there = Counter()
    for name, total, _ in found:
        there[name.partition(":fpga_pool:")[2]] += total
    assert there == Counter(f"{slot.card}:{slot.kind}" for slot in slots)


def test_each_host_is_up(cloud):
    hosts = {service.host for service in cloud.compute.services(binary="nova-compute") if service.state == "up"}
    assert {slot.host for slot in cloud.pool.slots()} <= hosts
    wait_until(lambda: all(service.up for service in cloud.pool.services()), "all services are up")


def test_a_machine_is_active_when_its_slot_is_loaded_and_deleted_has_none(cloud, flavor, boot):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256")))
    assert_has(cloud, server, 1)
    cloud.delete(server)
    cloud.free()
    wait_until(lambda: not cloud.held(server), "its slot is given back")


def test_several_slots_of_one_machine_are_on_one_card(cloud, flavor, boot):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256", 2)))
    assert len({slot.card for slot in assert_has(cloud, server, 2).values()}) == 1


def test_boots_at_once_fill_all_slots_and_one_more_is_refused(cloud, flavor, boot):
    total, place = room(cloud)
    servers = cloud.active(*[boot(flavor("sha256"), **place) for _ in range(total)])
    names = [name for server in servers for name in assert_has(cloud, server, 1)]
    assert len(set(names)) == total
    surplus = boot(flavor("sha256"), **place)
    with pytest.raises(openstack.exceptions.ResourceFailure):
        cloud.compute.wait_for_server(surplus, wait=300)
    assert "No valid host was found" in cloud.compute.get_server(surplus).fault["message"]


def test_a_stopped_machine_has_no_slot_and_starts_again_with_one(cloud, flavor, boot):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256")))
    cloud.compute.stop_server(server)
    cloud.compute.wait_for_server(server, status="SHUTOFF", wait=300)
    wait_until(lambda: not cloud.held(server), "its slot is given back")
    cloud.compute.start_server(server)
    (server,) = cloud.active(server)
    assert_has(cloud, server, 1)


def test_a_resize_changes_the_number_of_slots(cloud, flavor, boot):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256")))
    cloud.compute.resize_server(server, flavor("sha256", 2))
    cloud.compute.wait_for_server(server, status="VERIFY_RESIZE", wait=300)
    cloud.compute.confirm_server_resize(server)
    (server,) = cloud.active(server)
    assert_has(cloud, server, 2)


def test_a_shelved_machine_holds_no_slot(cloud, flavor, boot):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256")))
    cloud.compute.shelve_server(server)
    cloud.compute.wait_for_server(server, status="SHELVED_OFFLOADED", wait=300)
    cloud.free()
    wait_until(lambda: not cloud.held(server), "its slot is given back")
    cloud.compute.unshelve_server(server)
    (server,) = cloud.active(server)
    assert_has(cloud, server, 1)


def test_a_function_that_fits_one_kind_finds_its_slot_while_others_run(cloud, flavor, boot):
    _, place = room(cloud)
    slots = [slot for slot in cloud.pool.slots() if slot.host == place.get("host", slot.host)]
    cloud.active(*[boot(flavor("sha256"), **place) for slot in slots if slot.kind == "small"])
    (server,) = cloud.active(boot(flavor("optical_flow"), **place))
    assert_has(cloud, server, 1, "optical_flow")


def test_the_slots_of_a_ring_are_linked(cloud, flavor, boot):
    """All slots of a card are linked to each other, unless the operator configures otherwise."""
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256", 3, topology=Topology.RING)))
    assert len({slot.card for slot in assert_has(cloud, server, 3).values()}) == 1


def test_a_line_goes_on_over_the_cards_of_an_enclosure(cloud, flavor, boot):
    cloud.free()
    slots = cloud.pool.slots()
    if not any(slot_links(slot.links).card.enclosure for slot in slots):
        pytest.skip("no cards of this cloud are cabled: FPGA_POOL_LINKS, or [agent] enclosure")
    count = 1 + max(Counter((slot.host, slot.card) for slot in slots).values())
    (server,) = cloud.active(boot(flavor("sha256", count, topology=Topology.LINE, spread=Spread.HOST)))
    held = assert_has(cloud, server, count)
    assert len({slot.card for slot in held.values()}) == 2
    assert len({slot_links(slot.links).card.enclosure for slot in held.values()}) == 1


def test_nova_refuses_a_wrong_extra_spec_and_says_what_is_right(cloud, flavor):
    path = f"/flavors/{flavor('sha256').id}/os-extra_specs"
    specs = {"extra_specs": {"fpga_pool:topology": "star"}}
    refused = cloud.compute.post(path, json=specs, microversion="2.86")
    assert refused.status_code == 400
    assert all(name in refused.text for name in ("any", "line", "ring"))
