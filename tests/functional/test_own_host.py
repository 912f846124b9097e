"""Two hosts on one machine: a guest migrates live between their libvirtds, and nothing remains of the hosts."""

import contextlib
import os
import subprocess
import uuid

import pytest

from fpga_pool.drivers.tiers.domain import wish
from fpga_pool.model.flavor import Tier
from fpga_pool.services.agent.tiers.service import Tiers
from support.servers import Libvirt
from support.servers.own_host import CGROUPS
from support.waiting import wait_until

DOMAIN = """
<domain type='qemu'>
  <name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><loader readonly='yes' type='rom'>{firmware}</loader></os>
  <devices>
    <interface type='ethernet'><target dev='{device}' managed='no'/></interface>
  </devices>
</domain>
"""
#: A guest in a tier.
TIERED = """
<domain type='qemu'>
  <name>{name}</name><uuid>{name}</uuid><metadata>{metadata}</metadata><memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><loader readonly='yes' type='rom'>{firmware}</loader></os>
  <devices><controller type='usb' model='none'/><memballoon model='none'/></devices>
</domain>
"""
#: Code at the reset vector of the processor, which waits forever: `cli`, `hlt`, `jmp` back.
FIRMWARE = bytes(0xFFF0) + b"\xfa\xf4\xeb\xfd" + bytes(12)


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def machines(servers_directory):
    if problem := Libvirt.missing():
        pytest.skip(problem)
    directory = servers_directory / f"hosts-{uuid.uuid4().hex[:8]}"
    made = Libvirt(directory), Libvirt(directory, "second")
    try:
        yield made
    finally:
        for host in made:
            host.stop()


@pytest.fixture
def hosts(machines):
    """The two hosts, which run; the first is this machine."""
    return [host.start() for host in machines]


@pytest.fixture
def device(hosts):
    """A network device with the same name on both hosts, as on hosts with the same networks."""
    name, own = f"tap{uuid.uuid4().hex[:8]}", hosts[1].own_host
    for where in ([], ["-netns", own.label]):
        output("ip", *where, "tuntap", "add", name, "mode", "tap")
    yield name
    output("ip", "link", "delete", name)


@pytest.fixture
def firmware(tmp_path):
    file = tmp_path / "firmware"
    file.write_bytes(FIRMWARE)
    return file


@pytest.fixture
def guest(device, firmware, tmp_path):
    """A unique name and a description of a guest; libvirt leaves empty control groups of others behind."""
    name, description = f"moves-{uuid.uuid4()}", tmp_path / "domain.xml"
    description.write_text(DOMAIN.format(name=name, device=device, firmware=firmware))
    return name, str(description)


def virsh(host, *words):
    return output(*host.entrance, "virsh", *words)


def test_a_guest_migrates_live_between_two_hosts_of_one_machine_and_back(hosts, guest):
    (first, second), (name, description) = hosts, guest
    assert second.host_name == "second" != first.host_name
    virsh(first, "create", description)
    own = second.own_host
    for source, target, address in ((first, second, own.address), (second, first, own.outer_address)):
        to = [f"qemu+unix:///system?socket={target.socket}", "--migrateuri", f"tcp://{address}"]
        virsh(source, "migrate", "--live", "--p2p", name, *to)
        assert [virsh(host, "list", "--name").split() for host in (source, target)] == [[], [name]]
        assert virsh(target, "domstate", name).strip() == "running"


@pytest.fixture
def agents(hosts, tmp_path):
    """The services that keep guests of both hosts in their tiers: on one pCPU of the first, on two of the second."""
    driver = pytest.importorskip("fpga_pool.drivers.tiers.libvirt", reason="libvirt-python is not installed")
    if os.cpu_count() < 2 or not Libvirt.control_groups():
        pytest.skip("needs two processors, and control groups that it may write")
    with contextlib.ExitStack() as stack:
        made = []
        for host, pcpus in zip(hosts, ([0], [0, 1]), strict=True):
            tiers = driver.LibvirtTiers(f"qemu+unix:///system?socket={host.socket}", host.directory / "run" / "qemu")
            made.append(Tiers(tiers, pcpus, tmp_path / host.host_name, None, 0.5, usage_threshold=1.0))
            made[-1].start()
            stack.callback(made[-1].stop)
        yield made


@pytest.mark.timeout(600)
def test_a_guest_behind_the_foreground_migrates_past_another_one_into_a_free_foreground(
    hosts, agents, firmware, tmp_path
):
    first, second = hosts

    def start(host, agent, wanted, tier):
        name, file = str(uuid.uuid4()), tmp_path / "domain.xml"
        file.write_text(TIERED.format(name=name, metadata=wish(wanted), firmware=firmware))
        virsh(host, "create", str(file))
        wait_until(lambda: places(agent).get(name) == (tier, (0,)), f"{name} is in the {tier}", 240)
        return name

    def places(agent):
        return {guest.instance: (guest.tier, guest.pcpus) for guest in agent.guests()}

    front = start(first, agents[0], "foreground", Tier.FOREGROUND)
    held = start(first, agents[0], "auto", Tier.BACKGROUND)
    other = start(second, agents[1], "foreground", Tier.FOREGROUND)
    to = [f"qemu+unix:///system?socket={second.socket}", "--migrateuri", f"tcp://{second.own_host.address}"]
    virsh(first, "migrate", "--live", "--p2p", held, *to)
    there = {other: (Tier.FOREGROUND, (0,)), held: (Tier.FOREGROUND, (1,))}
    wait_until(lambda: places(agents[1]) == there, "it is in the free foreground", 240)
    wait_until(lambda: places(agents[0]) == {front: (Tier.FOREGROUND, (0,))}, "it has left", 240)
    for host, guest in ((first, front), (second, other), (second, held)):
        virsh(host, "destroy", guest)


def test_a_host_that_starts_again_finds_its_guests_and_one_that_stops_leaves_nothing(hosts, guest):
    (_, second), (name, description) = hosts, guest
    own = second.own_host
    virsh(second, "create", description)
    groups = [path.relative_to(CGROUPS).parts for path in CGROUPS.rglob(f"*-{name}.*")]
    assert all(own.label in group[:2] for group in groups)  # guests of two hosts would share groups otherwise
    assert bool(groups) == bool(Libvirt.control_groups())
    second.restart()
    assert virsh(second, "domstate", name).strip() == "running"
    second.stop()
    assert own.label not in output("ip", "netns", "list")
    wait_until(lambda: own.label not in output("ip", "link", "show"), "its cable is gone")
    left = (own.label, f"*/{own.label}")  # by version of control groups
    wait_until(lambda: not [*CGROUPS.glob(left[0]), *CGROUPS.glob(left[1])], "its control groups are gone")
    assert not own.control_groups.exists()
