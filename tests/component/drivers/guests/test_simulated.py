"""Guests that are described by files are found, given ports and reached like those of a hypervisor."""

import socket

import pytest

from fpga_pool.drivers.guests.simulated import SimulatedGuests

XML = """<domain><name>instance-1</name><uuid>{uuid}</uuid><metadata>
<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
<nova:flavor name="f"><nova:extraSpecs><nova:extraSpec name="fpga_pool:function">sha256</nova:extraSpec>
</nova:extraSpecs></nova:flavor><nova:owner><nova:project uuid="p1">p1</nova:project></nova:owner>
</nova:instance></metadata></domain>"""


@pytest.fixture
def guests(tmp_path):
    return SimulatedGuests(tmp_path)


@pytest.fixture
def vm(tmp_path):
    file = tmp_path / "vm.xml"
    file.write_text(XML.format(uuid="vm"))
    return file


def test_a_machine_runs_while_it_is_described(guests, vm):
    (found,) = guests.running()
    assert (found.instance, found.project_id, found.request.function) == ("vm", "p1", "sha256")
    vm.unlink()
    assert guests.running() == []
    assert guests.find("vm") is None


def test_a_description_that_cannot_be_read_hides_no_other(guests, vm):
    (vm.parent / "broken.xml").write_text("<domain")
    assert [domain.instance for domain in guests.running()] == ["vm"]


def test_whoever_watches_looks_at_all_machines_at_once(guests):
    looked = []
    guests.watch(looked.append)
    assert looked == [""]


def test_a_function_that_is_passed_is_seen_until_it_is_taken_or_the_machine_ends(guests, vm):
    domain = guests.find("vm")
    guests.attach_function(domain, 0, "ffff:00:00.0")
    guests.attach_function(domain, 1, "ffff:00:00.1")
    guests.detach_function(domain, 0, "ffff:00:00.0")
    assert guests.find("vm").functions == {1: "ffff:00:00.1"}
    assert guests.find("vm").ports == {}
    vm.unlink()
    assert guests.find("vm") is None
    vm.write_text(XML.format(uuid="vm"))
    assert guests.find("vm").functions == {}


def test_a_port_reaches_who_plays_the_guest_and_is_gone_with_the_machine(guests, vm):
    domain = guests.find("vm")
    assert domain.ports == {}
    guests.attach(domain, 0)
    guests.attach(domain, 1)
    guests.detach(domain, 1)
    domain = guests.find("vm")
    assert list(domain.ports) == [0]
    with pytest.raises(FileNotFoundError):  # no process listens yet
        guests.connect(domain, 0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(domain.ports[0])
        listener.listen()
        with guests.connect(domain, 0) as ours, listener.accept()[0] as theirs:
            ours.sendall(b"hello")
            assert theirs.recv(5) == b"hello"
    vm.unlink()
    assert guests.find("vm") is None
    vm.write_text(XML.format(uuid="vm"))
    assert guests.find("vm").ports == {}
