"""Domains as described by libvirt and Nova."""

import math

import pytest

from fpga_pool.drivers.guests.domain import Tap, function_xml, parse
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest, Topology

UUID = "6ac0cc8b-4f8c-4b2b-a6e2-bd2d2a6b0d0e"


def domain(specs="", devices="", uuid=UUID, ports=""):
    """Return a domain with Nova's metadata, as nova 34 writes it."""
    return f"""<domain type='qemu' id='3'><name>instance-0000002a</name><uuid>{uuid}</uuid>
      <metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
        <nova:package version="34.0.0"/><nova:name>&lt;evil&gt;</nova:name>
        <nova:flavor name="fpga.small" id="7"><nova:memory>512</nova:memory><nova:vcpus>1</nova:vcpus>
          <nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor>
        <nova:owner><nova:user uuid="u1">ann</nova:user><nova:project uuid="p1">demo</nova:project></nova:owner>
        <nova:ports>{ports}</nova:ports>
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
        ("\udc80<domain/>", "domain: invalid XML"),
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


def port(uuid, *addresses):
    ips = "".join(f'<nova:ip type="fixed" address="{address}" ipVersion="4"/>' for address in addresses)
    return f'<nova:port uuid="{uuid}">{ips}<nova:ip type="floating" address="203.0.113.9" ipVersion="4"/></nova:port>'


def interface(device, bandwidth=""):
    return f"<interface type='bridge'><target dev='{device}'/>{bandwidth}</interface>"


def test_finds_the_taps_of_neutrons_ports_with_their_addresses_and_limits():
    ports = port("567a4527-b0e4-4d0a-bcc2-71fda37897f7", "192.168.1.5", "fd00::5") + port("aaaaaaaa-bb-cc", "10.0.0.5")
    # libvirt can also limit the traffic to the guest (inbound), which does not count here.
    limit = "<bandwidth><inbound average='1'/><outbound average='2500' peak='5000'/></bandwidth>"
    devices = interface("tap567a4527-b0", limit) + interface("tapaaaaaaaa-bb") + interface("macvtap0")
    assert parse(domain(ports=ports, devices=devices)).taps == (
        Tap("tap567a4527-b0", ("192.168.1.5", "fd00::5"), 20e6),
        Tap("tapaaaaaaaa-bb", ("10.0.0.5",), math.inf),
    )


def test_a_device_of_no_port_or_without_an_address_is_no_tap():
    ports = port("567a4527-b0e4-4d0a-bcc2-71fda37897f7")
    assert parse(domain(ports=ports, devices=interface("tap567a4527-b0") + interface("tapother"))).taps == ()
    assert parse(f"<domain><uuid>{UUID}</uuid><devices>{interface('tap0')}</devices></domain>").taps == ()
