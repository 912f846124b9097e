from dataclasses import replace

import pytest

from fpga_pool.model.flavor import OWNER_TRAIT, provider_uuid
from fpga_pool.model.objects.pool import Host, Slot
from fpga_pool.placement.sync import is_of_hosts, wanted_providers

HOST = Host(name="h0", egress_bps=1e9, ingress_bps=1e9, data_address="::1", data_port=9, heard_at=0.0, node="h0.cloud")


def slot(region, kind="small", card="c", host="h0", board="fast"):
    return Slot(name=f"{host}/{card}/{region}", host=host, card=card, region=region, board=board, kind=kind)


SLOTS = [slot("r0"), slot("r1"), slot("r2", "large")]


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    functions = {"aes": (1.0, "small", "large"), "optical-flow": (4.0, "large")}
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.5)


@pytest.fixture
def wanted(catalogue):
    def wanted(slots=SLOTS, hosts=(HOST,), out=(), busy=(), floor=0):
        return wanted_providers(hosts, slots, catalogue, out, busy, floor)

    return wanted


def test_each_card_and_kind_is_a_provider_below_the_node_of_its_host(wanted):
    found = wanted([*SLOTS, slot("r0", card="d")])
    assert [(provider.name, provider.node, provider.total) for provider in found] == [
        ("h0:fpga_pool:c:large", "h0.cloud", 1),
        ("h0:fpga_pool:c:small", "h0.cloud", 2),
        ("h0:fpga_pool:d:small", "h0.cloud", 1),
    ]
    assert [provider.uuid for provider in found][:2] == [
        provider_uuid("h0", "c", "large"),
        provider_uuid("h0", "c", "small"),
    ]


def test_traits_tell_board_kind_and_functions_that_fit(wanted):
    large, small = wanted()
    common = {OWNER_TRAIT, "CUSTOM_FPGA_BOARD_FAST", "CUSTOM_FPGA_FUNCTION_AES"}
    assert small.traits == common | {"CUSTOM_FPGA_KIND_SMALL"}
    assert large.traits == common | {"CUSTOM_FPGA_KIND_LARGE", "CUSTOM_FPGA_FUNCTION_OPTICAL_FLOW"}


def test_a_host_that_tells_no_node_is_one_of_its_own_name(wanted):
    assert {provider.node for provider in wanted(hosts=(replace(HOST, node=""),))} == {"h0"}


def test_workers_of_cpu_pools_and_slots_of_other_hosts_are_none(wanted):
    assert wanted([slot("w0", kind="cpu", card="cpu"), slot("r0", host="h1")]) == []


@pytest.mark.parametrize(
    ("out", "busy", "floor", "reserved"),
    [
        ((), (), 0, 0),
        (("h0/c/r0",), (), 0, 1),
        ((), ("h0/c/r1",), 0, 1),
        ((), (), 1, 1),
        # A busy slot is the pool's and counts towards its floor; a slot out of service does not.
        ((), ("h0/c/r1",), 1, 1),
        (("h0/c/r0",), (), 1, 2),
        (("h0/c/r0",), ("h0/c/r1",), 1, 2),
        ((), (), 5, 2),
    ],
)
def test_what_no_machine_can_get_is_reserved(wanted, out, busy, floor, reserved):
    assert [provider.reserved for provider in wanted(SLOTS[:2], out=out, busy=busy, floor=floor)] == [reserved]


def test_providers_are_known_by_the_names_of_their_hosts():
    assert is_of_hosts("h0:fpga_pool:c:small", {"h0"})
    assert not is_of_hosts("h0:fpga_pool:c:small", {"h"})
    assert not is_of_hosts("h0", {"h0"})
