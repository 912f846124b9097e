"""Two hosts on one machine: a guest migrates live between their libvirtds, and nothing is left of them."""

import subprocess
import uuid

import pytest

from support.servers import Libvirt
from support.servers.own_host import CGROUPS
from support.waiting import wait_until

#: It has no disk, and runs the firmware that says so, for ever.
DOMAIN = """
<domain type='qemu'>
  <name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <interface type='ethernet'><target dev='{device}' managed='no'/></interface>
  </devices>
</domain>
"""


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
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
    """The two hosts, this machine is the first; they run."""
    return [host.start() for host in machines]


@pytest.fixture
def device(hosts):
    """A network device that both have under the same name, as hosts do that have the same networks."""
    name, own = f"tap{uuid.uuid4().hex[:8]}", hosts[1].own_host
    for where in ([], ["-netns", own.label]):
        output("ip", *where, "tuntap", "add", name, "mode", "tap")
    yield name
    output("ip", "link", "delete", name)


@pytest.fixture
def guest(device, tmp_path):
    """The name of a guest, and its description; libvirt leaves empty control groups of others behind."""
    name, description = f"moves-{uuid.uuid4()}", tmp_path / "domain.xml"
    description.write_text(DOMAIN.format(name=name, device=device))
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


def test_a_host_that_starts_again_finds_its_guests_and_one_that_stops_leaves_nothing(hosts, guest):
    (_, second), (name, description) = hosts, guest
    own = second.own_host
    virsh(second, "create", description)
    groups = [path.relative_to(CGROUPS).parts for path in CGROUPS.rglob(f"*-{name}.*")]
    assert {group[1] for group in groups} <= {own.label}  # or those of guests of two hosts would be the same
    assert bool(groups) == bool(Libvirt.control_groups())
    second.restart()
    assert virsh(second, "domstate", name).strip() == "running"
    second.stop()
    assert own.label not in output("ip", "netns", "list")
    wait_until(lambda: own.label not in output("ip", "link", "show"), "its cable is gone")
    wait_until(lambda: not list(CGROUPS.glob(f"*/{own.label}")), "its control groups are gone")
