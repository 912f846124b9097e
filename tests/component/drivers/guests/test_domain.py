"""Domains as libvirt and Nova describe them."""

import pytest

from fpga_pool.drivers.guests.domain import function_xml, parse
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest, Topology

UUID = "6ac0cc8b-4f8c-4b2b-a6e2-bd2d2a6b0d0e"


def domain(specs="", devices="", uuid=UUID):
    """Return a domain with Nova's metadata, as nova 34 writes it."""
    return f"""<domain type='qemu' id='3'><name>instance-0000002a</name><uuid>{uuid}</uuid>
      <metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
        <nova:package version="34.0.0"/><nova:name>&lt;evil&gt;</nova:name>
        <nova:flavor name="fpga.small" id="7"><nova:memory>512</nova:memory><nova:vcpus>1</nova:vcpus>
          <nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor>
        <nova:owner><nova:user uuid="u1">ann</nova:user><nova:project uuid="p1">demo</nova:project></nova:owner>
      </nova:instance></metadata><devices>{devices}</devices></domain>"""


def spec(name, value):
    return f"<nova:extraSpec name='{name}'>{value}</nova:extraSpec>"


SHA256 = spec("fpga_pool:function", "sha256")


def channel(name, path=None):
    source = f"<source mode='bind' path='{path}'/>" if path else ""
    return f"<channel type='unix'>{source}<target type='virtio' name='{name}'/></channel>"


def test_reads_instance_project_and_request():
    found = parse(domain(SHA256 + spec("fpga_pool:count", "3") + spec("fpga_pool:topology", "ring")))
    assert (found.instance, found.name, found.project_id) == (UUID, "instance-0000002a", "p1")
    assert found.request == AcceleratorRequest(function="sha256", count=3, topology=Topology.RING)


def test_a_flavor_without_our_extra_specs_asks_for_nothing():
    assert parse(domain(spec("hw:cpu_policy", "shared"))).request is None
    assert parse(f"<domain><uuid>{UUID}</uuid></domain>").request is None


def test_finds_our_ports_and_their_sockets_among_other_channels():
    controller = "<controller type='virtio-serial' index='0'/>"
    channels = channel("org.qemu.guest_agent.0", "/ga") + channel("org.fpga_pool.1", "/p1") + channel("org.fpga_pool.0")
    found = parse(domain(SHA256, controller + channels))
    assert found.ports == {0: "", 1: "/p1"}
    assert found.has_controller
    assert not parse(domain(SHA256)).has_controller


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        ("<domain", "domain: invalid XML"),
        (domain(SHA256, uuid=""), "domain: missing uuid"),
        (domain(SHA256 + spec("fpga_pool:count", "0")), "fpga_pool:count: '0' is invalid"),
    ],
)
def test_says_what_is_wrong(xml, what):
    with pytest.raises(InvalidInput, match=what):
        parse(xml)


def test_a_function_is_found_as_it_was_passed_among_devices_of_others():
    other = (
        "<hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x1'/>"
    )
    other += "</source><alias name='hostdev0'/></hostdev>"
    found = parse(domain(SHA256, other + function_xml(1, "0000:af:02.3") + function_xml(0, "0001:3b:1f.7")))
    assert found.functions == {0: "0001:3b:1f.7", 1: "0000:af:02.3"}


@pytest.mark.parametrize("address", ["", "3b:00.1", "0000:3b:00.8", "0000:3b:00.1'/><evil/>"])
def test_what_is_no_pci_address_is_refused(address):
    with pytest.raises(InvalidInput, match="PCI address"):
        function_xml(0, address)
