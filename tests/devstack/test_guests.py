"""What runs in machines of a real hypervisor: results of their accelerators, and what they send."""

import hashlib
import random
import re

import pytest

from fpga_pool.client import JobSpec
from fpga_pool.model.exceptions import FpgaPoolError
from support import guest_image
from support.waiting import wait_until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.filterwarnings("default")]

PAYLOAD = random.Random(7).randbytes(100_000)


@pytest.fixture(scope="module")
def computing(guest, guest_host, kernel, tmp_path_factory):
    """A guest that asks its accelerators for a digest over and over."""
    return guest(guest_image.build(kernel, PAYLOAD, tmp_path_factory.mktemp("guest")))


@pytest.mark.parametrize("count", [1, 2])
def test_a_guest_has_the_right_result_of_the_slots_of_its_flavor(cloud, flavor, boot, computing, guest_host, count):
    cloud.free()
    (server,) = cloud.active(boot(flavor("sha256", count, ram=256), image=computing, host=guest_host))
    assert [slot.function for slot in cloud.held(server).values()] == ["sha256"] * count
    cloud.said(server, f"turn 1: {hashlib.sha256(PAYLOAD).hexdigest()}")
    # It lists its accelerators between the first turn and the second; the console may have a line twice.
    console = cloud.said(server, "turn 2: ")
    assert set(re.findall(r"(\d)  /dev/vport", console)) == {str(number) for number in range(count)}


def test_a_server_sends_for_its_project_and_for_no_other(cloud, flavor, boot, guest_host, tenant, tmp_path):
    """Its agent has found it: the plan of a batch that it is to send has a place for it, as for a host."""
    (server,) = cloud.active(boot(flavor("sha256"), host=guest_host))
    file = tmp_path / "input"
    file.write_bytes(PAYLOAD)
    jobs = [JobSpec("sha256", file, f"server:{server.id}")]

    def planned():
        try:
            return cloud.pool.dry_run(jobs)
        except FpgaPoolError:  # until the heartbeat after the look at the taps
            return None

    wait_until(planned, f"server {server.id} may send")
    with tenant() as stranger, pytest.raises(FpgaPoolError, match=server.id):
        stranger.dry_run(jobs)
