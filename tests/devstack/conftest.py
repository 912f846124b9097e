"""A cloud with the pool in it, as an operator's clients see it: OS_CLOUD of clouds.yaml names it."""

import os
import time
import uuid

import openstack
import pytest

from fpga_pool.client.api import PoolApi

BOOT_TIMEOUT_S = 300
#: For the pool and Placement to have heard of what Nova did.
SETTLE_TIMEOUT_S = 60.0
IMAGE_BYTES = 1 << 20


@pytest.fixture(scope="session")
def cloud():
    """The administrator's connection."""
    name = os.environ.get("OS_CLOUD") or pytest.exit("OS_CLOUD must name a cloud of clouds.yaml", 2)
    return openstack.connect(cloud=name)


@pytest.fixture(scope="session")
def endpoint(cloud):
    """The URL of the pool's API, from Keystone's catalogue."""
    found = cloud.session.get_endpoint(service_type="fpga", interface="public")
    assert found, "Keystone's catalogue has no service of type fpga"
    return found


@pytest.fixture(scope="session")
def pool(endpoint):
    """The pool's API."""
    with PoolApi(endpoint) as pool:
        yield pool


@pytest.fixture(scope="session")
def image(cloud):
    """An image with nothing on it: what its machines compute is not looked at."""
    made = cloud.image.create_image(
        name=f"fpga-test-{uuid.uuid4()}",
        disk_format="raw",
        container_format="bare",
        data=bytes(IMAGE_BYTES),
        hw_qemu_guest_agent="yes",
    )
    yield made
    cloud.image.delete_image(made)


@pytest.fixture(scope="session")
def network(cloud):
    """A network of the tests' own."""
    made = cloud.network.create_network(name=f"fpga-test-{uuid.uuid4()}")
    cloud.network.create_subnet(network_id=made.id, ip_version=4, cidr="10.254.0.0/24", enable_dhcp=False)
    yield made
    cloud.network.delete_network(made)


@pytest.fixture(scope="session")
def flavor(cloud):
    """Make flavors of a function and a number of slots on one card."""
    made = {}

    def get(function="sha256", count=1):
        if (function, count) not in made:
            flavor = cloud.compute.create_flavor(name=f"fpga-test-{uuid.uuid4()}", ram=64, vcpus=1, disk=1)
            specs = {
                "fpga_pool:function": function,
                "fpga_pool:count": str(count),
                "resources:CUSTOM_FPGA_SLOT": str(count),
                f"trait:CUSTOM_FPGA_FUNCTION_{function.upper()}": "required",
            }
            cloud.compute.create_flavor_extra_specs(flavor, specs)
            made[function, count] = flavor
        return made[function, count]

    yield get
    for flavor in made.values():
        cloud.compute.delete_flavor(flavor)


@pytest.fixture
def boot(cloud, image, network):
    """Ask for machines, which are gone after the test."""
    servers = []

    def boot(flavor, **more):
        server = cloud.compute.create_server(
            name=f"fpga-test-{len(servers)}",
            image_id=image.id,
            flavor_id=flavor.id,
            networks=[{"uuid": network.id}],
            **more,
        )
        servers.append(server)
        return server

    yield boot
    for server in servers:
        cloud.compute.delete_server(server, ignore_missing=True)
    for server in servers:
        cloud.compute.wait_for_delete(server, wait=BOOT_TIMEOUT_S)


@pytest.fixture
def active(cloud):
    """Wait until machines are ACTIVE; one that is not fails the test with Nova's reason."""

    def wait(*servers):
        for server in servers:
            try:
                cloud.compute.wait_for_server(server, wait=BOOT_TIMEOUT_S)
            except openstack.exceptions.ResourceFailure:
                pytest.fail(f"{server.name}: {cloud.compute.get_server(server).fault}")
        return [cloud.compute.get_server(server) for server in servers]

    return wait


@pytest.fixture
def eventually():
    """Poll until a function returns something true, and return that."""

    def wait(look):
        end_s = time.monotonic() + SETTLE_TIMEOUT_S
        while not (found := look()):
            assert time.monotonic() < end_s, f"not true within {SETTLE_TIMEOUT_S:g} s"
            time.sleep(1)
        return found

    return wait
