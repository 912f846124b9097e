"""A cloud that contains the pool, as an operator's clients see it; OS_CLOUD is its name in clouds.yaml.

Its slots must not be in use by others.  A test of a feature that a cloud lacks skips, and names the feature.
"""

import os
import shutil
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path

import openstack
import pytest

from fpga_pool.client import Client
from fpga_pool.client.session import Login
from fpga_pool.model.extra_specs import Spread, consistent_extra_specs, tier_extra_specs
from fpga_pool.model.flavor import AcceleratorRequest, Tier, Topology
from support import guest_image
from support.waiting import wait_until

BOOT_TIMEOUT_S = 300
#: For the pool and Placement to process the actions of Nova.
SETTLE_TIMEOUT_S = 180.0
COMMAND_TIMEOUT_S = 180.0
#: For an emulated guest on a busy machine.
CONSOLE_TIMEOUT_S = 400.0
IMAGE_BYTES = 1 << 20
SLOTS = "CUSTOM_FPGA_SLOT"
#: Maximum number of machines that are booted concurrently.
MOST_BOOTS = 16
#: Nova's name of hypervisors without real guests.
FICTION = "fake"
#: The pool's configuration, which `fpga-pool-manage` needs to read.
CONF = Path(os.environ.get("FPGA_POOL_CONF", "/etc/fpga_pool/fpga_pool.conf"))


def cloud_name():
    return os.environ.get("OS_CLOUD") or pytest.exit("OS_CLOUD must name a cloud of clouds.yaml", 2)


def a_name(what="test"):
    return f"fpga-{what}-{uuid.uuid4()}"


class Cloud:
    """A project of the cloud, used by its administrator, and queries about its machines."""

    def __init__(self, connection):
        self.connection = connection
        self.compute, self.placement = connection.compute, connection.placement
        self.pool = Client(login=Login(connection.session))

    def providers(self):
        """Return name, slots and slots in use of each provider of the pool."""
        found = []
        for provider in self._placement("/resource_providers?required=CUSTOM_OWNER_FPGA_POOL")["resource_providers"]:
            path = f"/resource_providers/{provider['uuid']}"
            total = self._placement(f"{path}/inventories")["inventories"][SLOTS]["total"]
            found.append((provider["name"], total, self._placement(f"{path}/usages")["usages"][SLOTS]))
        return found

    def _placement(self, path):
        return self.placement.get(path, microversion="1.29").json()

    def allocated(self, server, resource=SLOTS):
        """Return how many slots, or other resources, Placement has allocated to a machine."""
        answer = self._placement(f"/allocations/{server.id}")["allocations"]
        return sum(given["resources"].get(resource, 0) for given in answer.values())

    def held(self, server):
        """Return the slots that the pool has leased to a machine, by name."""
        users = (line for card in self.pool.cards() for line in self.pool.card(card.uuid).user_list)
        names = {line.split()[1] for line in users if server.id in line}
        return {slot.name: slot for slot in self.pool.slots() if slot.name in names}

    def free(self):
        """Wait until no machine has a slot; return how many slots there are."""
        wait_until(lambda: not any(used for _, _, used in self.providers()), "no slot is allocated", SETTLE_TIMEOUT_S)
        return sum(total for _, total, _ in self.providers())

    def require_free(self, slots):
        """Wait until at least this many slots are not allocated."""

        def enough():
            return sum(total - used for _, total, used in self.providers()) >= slots

        wait_until(enough, f"{slots} slots are not allocated", SETTLE_TIMEOUT_S)

    def hosts(self, *, real):
        """Return the compute hosts with real guests, or those with fake ones."""
        found = self.compute.hypervisors(details=True)
        return [
            each.service_details["host"]
            for each in found
            if each.state == "up" and (each.hypervisor_type.lower() != FICTION) == real
        ]

    def said(self, server, text):
        """Wait until a text is on a guest's console; return the console output."""

        def look():
            said = self.compute.get_server_console_output(server)["output"]
            return said if text in said else ""

        return wait_until(look, f"{text!r} on the console of {server.id}", CONSOLE_TIMEOUT_S)

    def active(self, *servers):
        """Wait until machines are ACTIVE; fail the test with Nova's reason if one is not."""
        for server in servers:
            try:
                self.compute.wait_for_server(server, wait=BOOT_TIMEOUT_S)
            except openstack.exceptions.ResourceFailure:
                pytest.fail(f"{server.name}: {self.compute.get_server(server).fault}")
        return [self.compute.get_server(server) for server in servers]

    def delete(self, *servers):
        for server in servers:
            self.compute.delete_server(server, ignore_missing=True)
        for server in servers:
            self.compute.wait_for_delete(server, wait=BOOT_TIMEOUT_S)


@pytest.fixture(scope="module")
def cloud():
    """The administrator in a separate project, which may have any number of machines."""
    outside = openstack.connect(cloud=cloud_name())
    identity = outside.identity
    project = identity.create_project(name=a_name("project"), domain_id="default")
    admin = identity.find_role("admin", ignore_missing=False)
    identity.assign_project_role_to_user(project, outside.current_user_id, admin)
    inside = outside.connect_as_project(project)
    inside.set_compute_quotas(project.id, instances=-1, cores=-1, ram=-1)
    yield Cloud(inside)
    identity.delete_project(project)


@pytest.fixture(scope="module")
def image(cloud):
    """An empty image, for machines whose computations do not matter.

    If a cloud has hosts of both kinds, its machines stay on those with fake guests, as machines cannot be resized
    between the two kinds.
    """
    kind = {"img_hv_type": FICTION} if cloud.hosts(real=False) else {}
    made = upload(cloud, bytes(IMAGE_BYTES), hw_qemu_guest_agent="yes", **kind)
    yield made
    cloud.connection.image.delete_image(made)


def upload(cloud, data, disk_format="raw", container_format="bare", **properties):
    formats = {"disk_format": disk_format, "container_format": container_format}
    return cloud.connection.image.create_image(name=a_name("image"), data=data, **formats, **properties)


@pytest.fixture(scope="module")
def kernel():
    """A kernel with its modules, from which guests are built."""
    return guest_image.kernel() or pytest.skip("no kernel with its modules is installed: linux-image-cloud-amd64")


@pytest.fixture(scope="module")
def guest(cloud, kernel):
    """Make images of guests that consist of a kernel and an initial file system: `guest(initrd, command_line)`."""
    made = []

    def build(initrd, words="", **more):
        code = bytearray(kernel.read_bytes())
        code[510:512] = bytes(2)  # Nova may take a kernel with a boot sector's signature for a broken disk
        parts = {
            "kernel_id": upload(cloud, bytes(code), "aki", "aki"),
            "ramdisk_id": upload(cloud, initrd.read_bytes(), "ari", "ari"),
        }
        line = f"console=ttyS0 loglevel=0 panic=-1 no_timer_check {words}"
        ids = {name: part.id for name, part in parts.items()}
        image = upload(cloud, bytes(IMAGE_BYTES), hw_qemu_guest_agent="yes", os_command_line=line, **ids, **more)
        made.extend((image, *parts.values()))
        return image

    yield build
    for image in made:
        cloud.connection.image.delete_image(image)


@pytest.fixture(scope="module")
def counting(cloud, request, tmp_path_factory):
    """The name of a public image whose machines count to five and power off; "" if no host runs guests."""
    if guest_image.kernel() is None or not cloud.hosts(real=True):
        return ""
    built = guest_image.build_counting(tmp_path_factory.mktemp("counting"))
    return request.getfixturevalue("guest")(built, 'command="count 5"', visibility="public").name


@pytest.fixture(scope="module")
def network(cloud):
    """A separate network for these tests."""
    neutron = cloud.connection.network
    made = neutron.create_network(name=a_name("network"))
    neutron.create_subnet(network_id=made.id, ip_version=4, cidr="10.254.0.0/24", enable_dhcp=False)
    yield made
    neutron.delete_network(made)


@pytest.fixture(scope="module")
def flavor(cloud):
    """Make flavors by their requests to the pool; vCPUs are not counted, so that only slots are scarce."""
    made = {}

    def get(function="sha256", count=1, *, topology=Topology.ANY, spread=Spread.CARD, tier=None, ram=64, **more):
        key = (function, count, topology, spread, tier, ram, *more.items())
        if key not in made:
            request = AcceleratorRequest(function=function, count=count, topology=topology, tier=tier and Tier(tier))
            specs = consistent_extra_specs(request, spread) if function else tier_extra_specs(Tier(tier), 1, **more)
            made[key] = cloud.compute.create_flavor(name=a_name("flavor"), ram=ram, vcpus=1, disk=1)
            cloud.compute.create_flavor_extra_specs(made[key], specs if tier else {**specs, "resources:VCPU": "0"})
        return made[key]

    yield get
    for flavor in made.values():
        cloud.compute.delete_flavor(flavor)


@pytest.fixture
def boot(cloud, image, network):
    """Create machines, which are deleted after the test."""
    servers = []

    def boot(flavor, *, image=image, **more):
        networks = [{"uuid": network.id}]
        named = {"name": a_name("server"), "image_id": image.id, "flavor_id": flavor.id, "networks": networks}
        servers.append(cloud.compute.create_server(**{**named, **more}))
        return servers[-1]

    yield boot
    cloud.delete(*servers)


@pytest.fixture(scope="module")
def account(cloud):
    """Make members of new projects, or of a given one: `account()` returns login parameters."""
    identity, made = cloud.connection.identity, []
    where = {
        "auth_url": cloud.connection.config.get_auth_args()["auth_url"],
        "region_name": cloud.connection.config.get_region_name(),
    }

    def make(project=None):
        if project is None:
            project = identity.create_project(name=a_name("tenant"), domain_id="default")
            made.append(partial(identity.delete_project, project))
        user = identity.create_user(name=a_name("user"), password=project.id, default_project_id=project.id)
        made.append(partial(identity.delete_user, user))
        identity.assign_project_role_to_user(project, user, identity.find_role("member", ignore_missing=False))
        who = {"username": user.name, "password": project.id, "project_id": project.id, "user_domain_id": "default"}
        return who | where

    yield make
    for undo in reversed(made):
        undo()


@pytest.fixture
def tenant(account):
    """Make members of new projects; return a client of the pool for each."""

    def make():
        connection = openstack.connect(load_envvars=False, load_yaml_config=False, **account())
        return Client(login=Login(connection.session))

    return make


def program(name):
    """Return the path of a command as users of the cloud call it; None if it is not installed."""
    ours = str(Path(sys.executable).parent)
    path = os.pathsep.join(place for place in os.environ["PATH"].split(os.pathsep) if place != ours)
    return shutil.which(name, path=path)


@pytest.fixture(scope="session")
def manage():
    """Run `fpga-pool-manage` of the cloud as its administrator, as its database may need plug-ins."""
    if not os.access(CONF, os.R_OK):
        pytest.skip(f"{CONF} cannot be read here: FPGA_POOL_CONF names the pool's configuration")
    found = program("fpga-pool-manage") or Path(sys.executable).with_name("fpga-pool-manage")

    def run(*words, code=0):
        command = [found, f"--config-file={CONF}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def guest_host(cloud):
    """A host that runs guests."""
    hosts = cloud.hosts(real=True)
    return hosts[0] if hosts else pytest.skip("no host of this cloud runs its guests: its driver of Nova is fake")
