"""Real guests under a real libvirtd: unaccelerated by KVM, so that they run wherever the tests do."""

import contextlib
import hashlib
import os
import random
import re
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from support import guest_image as images
from support.waiting import wait_until

from . import gang_guests
from . import hypervisor as hypervisors
from . import tier_machines as tier_machines_of

#: A guest that nothing accelerates takes long to come up where much else runs.
PATIENCE_S = 240.0
#: All guests together compete with all else on the host; here that is other tests.
MACHINE_SHARES = {
    # By version of control groups, with eight times the default, and the most.
    Path("/sys/fs/cgroup/cpu/machine/cpu.shares"): (8192, 262144),
    Path("/sys/fs/cgroup/machine/cpu.weight"): (800, 10000),
}
CONTROLLER = "<controller type='virtio-serial'/>"
PAYLOAD = random.Random(6).randbytes(200_000)
DIGEST = hashlib.sha256(PAYLOAD).hexdigest()


@pytest.fixture(scope="session")
def libvirt():
    return pytest.importorskip("libvirt", reason="libvirt-python is not installed: pip install fpga_pool[libvirt]")


@pytest.fixture(scope="session")
def hypervisor(libvirt):
    """A libvirtd whose hook asks on `hook_socket` of its directory."""
    if why := hypervisors.missing():
        pytest.skip(why)
    # Sockets have short names.
    directory = Path(tempfile.mkdtemp(prefix="fpga-libvirt-"))
    made = hypervisors.Hypervisor(directory)
    try:
        made.start(directory / "agent.sock")
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def connection(libvirt, hypervisor):
    libvirt.registerErrorHandler(lambda *_: None, None)
    with contextlib.closing(libvirt.open(hypervisor.uri)) as connection:
        yield connection


@pytest.fixture(scope="session")
def kernel():
    return images.kernel() or pytest.skip("no kernel with its modules is installed: linux-image-cloud-amd64")


@pytest.fixture(scope="session")
def initrd(kernel, tmp_path_factory):
    return images.build(kernel, PAYLOAD, tmp_path_factory.mktemp("image"))


@dataclass
class Guest:
    """One virtual machine."""

    uuid: str
    domain: object
    console: Path

    def turns(self, after: int = 0) -> list[str]:
        """What it computed, from the turn after this one on."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        found = re.findall(r"^turn (\d+): (.*?)\r?$", text, re.MULTILINE)
        return [told for number, told in found if int(number) > after]

    def said(self, words: str) -> bool:
        return self.console.exists() and words in self.console.read_text(errors="replace")


@pytest.fixture
def define(connection, kernel, initrd, tmp_path):
    """Define machines: `define({"fpga_pool:function": "sha256"})`."""
    guests = []

    def make(specs, devices=CONTROLLER) -> Guest:
        number = len(guests)
        plain = "".join(f"<nova:extraSpec name='{name}'>{value}</nova:extraSpec>" for name, value in specs.items())
        machine, console = str(uuid.uuid4()), tmp_path / f"console-{number}"
        xml = hypervisors.DOMAIN.format(
            name=f"guest-{machine[:8]}",
            uuid=machine,
            specs=plain,
            kernel=kernel,
            initrd=initrd,
            console=console,
            devices=devices,
            vcpus=1,
            cmdline="",
            metadata="",
        )
        guests.append(Guest(machine, connection.defineXML(xml), console))
        return guests[-1]

    yield make
    for guest in guests:
        print(f"--- console of {guest.uuid}\n{guest.console.read_text() if guest.console.exists() else ''}")
        with contextlib.suppress(Exception):
            guest.domain.destroy()
        with contextlib.suppress(Exception):
            guest.domain.undefine()


@pytest.fixture
def until():
    return partial(wait_until, timeout_s=PATIENCE_S)


@pytest.fixture(scope="session")
def tier_hypervisor(libvirt):
    """A libvirtd that keeps its guests in control groups."""
    if why := hypervisors.missing():
        pytest.skip(why)
    directory = Path(tempfile.mkdtemp(prefix="fpga-tiers-"))
    made = hypervisors.Hypervisor(directory, tier_machines_of.CONTROLLERS)
    try:
        made.start(directory / "agent.sock")
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def busy_initrd(kernel, tmp_path_factory):
    return images.build_busy(tmp_path_factory.mktemp("busy"))


@pytest.fixture
def tier_machines(libvirt, tier_hypervisor, kernel, busy_initrd, tmp_path):
    with contextlib.closing(libvirt.open(tier_hypervisor.uri)) as connection:
        machines = tier_machines_of.LibvirtMachines(tier_hypervisor, connection, kernel, busy_initrd, tmp_path)
        yield machines
        machines.close()


@contextlib.contextmanager
def machine_shares(which):
    """Change what all guests together get of the CPU; nothing where they have no group."""
    found = next((file for file in MACHINE_SHARES if file.exists()), None)
    before = found.read_text() if found else ""
    if found:
        found.write_text(str(MACHINE_SHARES[found][which]))
    try:
        yield
    finally:  # all else on the host would starve
        if found:
            found.write_text(before)


@pytest.fixture
def fair_guests():
    """All guests together get as much of the CPU as eight other processes that want it, not as one."""
    with machine_shares(0):
        yield


@pytest.fixture(scope="module")
def quiet_pcpu(tier_hypervisor):
    """A pCPU on which nobody else gets much while a guest wants it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with machine_shares(1):
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # who changes tiers does not wait behind other tests
        yield
        os.setpriority(os.PRIO_PROCESS, 0, before)


@pytest.fixture(scope="session")
def gang_images(kernel, tmp_path_factory):
    return gang_guests.build_image(kernel, tmp_path_factory.mktemp("gangs"))


@pytest.fixture
def shared(gang_images, tmp_path):
    return gang_guests.Shared(gang_images, tmp_path / "shared")


@pytest.fixture(scope="session")
def other_hypervisor(libvirt):
    """A second host."""
    directory = Path(tempfile.mkdtemp(prefix="fpga-other-"))
    made = hypervisors.Hypervisor(directory, tier_machines_of.CONTROLLERS)
    try:
        made.start(directory / "agent.sock")
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def gang_hosts(libvirt, tier_hypervisor, other_hypervisor, shared):
    """Two hosts that share directories; what is left of guests is removed at the end."""
    with contextlib.ExitStack() as stack:
        hosts = []
        for hypervisor in (tier_hypervisor, other_hypervisor):
            hosts.append(gang_guests.GangHost(hypervisor, shared))
            stack.callback(hosts[-1].close)
        yield hosts
        for console in sorted(shared.consoles.iterdir()):
            print(f"--- {console.name}\n{console.read_text(errors='replace')[-1500:]}")
