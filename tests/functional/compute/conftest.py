"""Real guests of a real libvirtd: emulated, without KVM, so that they run wherever the tests do."""

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

#: A guest without hardware acceleration takes long to boot on a busy machine.
PATIENCE_S = 240.0
#: CPU shares of all guests together, relative to everything else on the host, which here is other tests.
MACHINE_SHARES = {
    # By version of control groups: eight times the default, and the maximum.
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
    """A libvirtd whose hook calls the agent at the socket `agent.sock` of its directory."""
    if why := hypervisors.missing():
        pytest.skip(why)
    # Paths of sockets have to be short.
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
        """Return the results of its turns after this one."""
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
    """A libvirtd that uses control groups for its guests."""
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
    """Change the CPU shares of all guests together; do nothing if they have no group."""
    found = next((file for file in MACHINE_SHARES if file.exists()), None)
    before = found.read_text() if found else ""
    if found:
        found.write_text(str(MACHINE_SHARES[found][which]))
    try:
        yield
    finally:  # otherwise everything else on the host would starve
        if found:
            found.write_text(before)


@pytest.fixture
def fair_guests():
    """Give all guests together as much CPU time as eight other busy processes, rather than as one."""
    with machine_shares(0):
        yield


@pytest.fixture(scope="module")
def quiet_pcpu(tier_hypervisor):
    """A pCPU on which other processes get little while a guest is busy."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with machine_shares(1):
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # code that changes tiers does not wait behind other tests
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
    """The libvirtd of a second host."""
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
    """Two hosts that share directories; remaining guests are removed at the end."""
    with contextlib.ExitStack() as stack:
        hosts = []
        for hypervisor in (tier_hypervisor, other_hypervisor):
            hosts.append(gang_guests.GangHost(hypervisor, shared))
            stack.callback(hosts[-1].close)
        yield hosts
        for console in sorted(shared.consoles.iterdir()):
            print(f"--- {console.name}\n{console.read_text(errors='replace')[-1500:]}")
