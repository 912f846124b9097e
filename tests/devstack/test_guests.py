"""Programs in machines of a real hypervisor: results of their accelerators, and the data that they send."""

import hashlib
import os
import random
import re
import subprocess

import pytest

from fpga_pool.client import JobSpec
from fpga_pool.model.exceptions import FpgaPoolError
from support import guest_image
from support.waiting import wait_until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.filterwarnings("default")]

PAYLOAD = random.Random(7).randbytes(100_000)
SENT_MB = 20
#: Command that connects the tap {} with the gateway of its network, through which the services of the cloud are
#: reached.
CONNECT = os.environ.get("FPGA_POOL_CONNECT", "")


@pytest.fixture(scope="module")
def computing(guest, guest_host, kernel, tmp_path_factory):
    """A guest that computes digests on its accelerators in a loop."""
    return guest(guest_image.build(kernel, PAYLOAD, tmp_path_factory.mktemp("guest")))


@pytest.mark.parametrize("count", [1, 2])
def test_a_guest_has_the_right_result_of_the_slots_of_its_flavor(cloud, flavor, boot, computing, guest_host, count):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256", count, ram=256), image=computing, host=guest_host))
    assert [slot.function for slot in cloud.held(server).values()] == ["sha256"] * count
    cloud.said(server, f"turn 1: {hashlib.sha256(PAYLOAD).hexdigest()}")
    # The guest lists its accelerators between the first turn and the second; the console may repeat a line.
    console = cloud.said(server, "turn 2: ")
    assert set(re.findall(r"(\d)  /dev/vport", console)) == {str(number) for number in range(count)}


def test_a_server_sends_for_its_project_and_for_no_other(cloud, flavor, boot, computing, guest_host, tenant, tmp_path):
    """Its agent has found it: a batch that it sends can be planned, as one of a host."""
    (server,) = cloud.active(boot(flavor("sha256", ram=256), image=computing, host=guest_host))
    file = tmp_path / "input"
    file.write_bytes(PAYLOAD)
    jobs = [JobSpec("sha256", file, f"server:{server.id}")]

    def planned():
        try:
            return cloud.pool.dry_run(jobs)
        except FpgaPoolError:  # until the first heartbeat after taps were read
            return None

    wait_until(planned, f"server {server.id} may send")
    with tenant() as stranger, pytest.raises(FpgaPoolError, match=server.id):
        stranger.dry_run(jobs)


@pytest.fixture
def port(cloud, network):
    """A port whose address is known before a server exists."""
    neutron = cloud.connection.network
    made = neutron.create_port(network_id=network.id)
    yield made
    neutron.delete_port(made)


@pytest.mark.skipif(not CONNECT, reason="FPGA_POOL_CONNECT does not say how a server's tap leads to the cloud")
def test_a_server_sends_the_inputs_of_its_own_batches_by_its_tap(
    cloud, account, port, flavor, boot, guest, guest_host, kernel, tmp_path
):
    cloud.free()
    address = port.fixed_ips[0]
    gateway = cloud.connection.network.get_subnet(address["subnet_id"]).gateway_ip
    words = f"address={address['ip_address']} via={gateway}"
    login = account(cloud.connection.identity.get_project(cloud.connection.current_project_id))
    image = guest(guest_image.build_client(kernel, tmp_path, login, SENT_MB), words)
    plain = flavor("sha256", ram=512)
    (server,) = cloud.active(boot(plain, image=image, host=guest_host, networks=[{"port": port.id}]))
    subprocess.run(CONNECT.replace("{}", f"tap{port.id[:11]}"), shell=True, check=True, timeout=60)
    cloud.said(server, f"result: {hashlib.sha256(bytes(SENT_MB * 1_000_000)).hexdigest()}")

    def sending():
        return [flow for flow in cloud.pool.flows() if flow.requester == f"server:{server.id}" and flow.measured_bps]

    wait_until(sending, "a flow of the server is measured")
