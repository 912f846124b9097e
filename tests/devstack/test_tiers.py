"""Two machines that share a pCPU in tiers."""

import json
import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from fpga_pool.model.flavor import TIER_CLASSES, Tier
from support.cloud.cloud import libvirts
from support.cloud.site import DIRECTORY_VARIABLE, Site
from support.disks import boot_disk
from support.waiting import wait_until

from .conftest import IMAGE_BYTES, upload

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]

#: Prints BORN at the serial port, then a point nine times in four seconds: it computes for four ticks of its clock, and
#: executes `rest` for four.
BORN, POINT, TICKS_AT = "BORN", ".", "6c04"
TURNS = (
    "31c0"  # xor ax, ax
    "8ed8"  # mov ds, ax
    "fb"  # sti
    "be277c"  # mov si, text
    "baf803"  # mov dx, 0x3f8
    "ac"  # next: lodsb
    "84c0"  # test al, al
    "7403"  # jz busy
    "ee"  # out dx, al
    "ebf8"  # jmp next
    f"f606{TICKS_AT}04"  # busy: test byte [ticks], 4
    "74f9"  # jz busy
    f"b0{ord(POINT):02x}"  # mov al, point
    "ee"  # out dx, al
    "{rest}"  # rest
    f"f606{TICKS_AT}04"  # test byte [ticks], 4
    "75f8"  # jnz rest
    "ebec"  # jmp busy
)
HLT, NOP = "f4", "90"

HYPERVISOR_TIMEOUT_S = 60
#: Time for the pool to plan, and for a guest to migrate, while all services share its pCPU.
MIGRATION_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def turning(cloud):
    """Make images of machines that compute for half of the time, or always."""
    made = []

    def make(rest):
        code = bytes.fromhex(TURNS.replace("{rest}", rest))
        made.append(upload(cloud, boot_disk(code + f"{BORN}\r\n\0".encode())))
        return made[-1]

    yield make
    for image in made:
        cloud.connection.image.delete_image(image)


@pytest.fixture(scope="module")
def idle(cloud):
    """The image of machines that do nothing, on hosts of every kind."""
    made = upload(cloud, bytes(IMAGE_BYTES))
    yield made
    cloud.connection.image.delete_image(made)


@pytest.fixture
def tiers(cloud, manage):
    """Return a host's guests with pCPUs and their tiers, by instance, after changing the given ones."""
    answer = cloud.placement.get("/resource_providers?required=CUSTOM_FPGA_TIERS", microversion="1.29")
    # Placement refuses unknown traits.
    if not answer.ok or not answer.json()["resource_providers"]:
        pytest.skip("no pCPUs of this cloud carry tiers: FPGA_POOL_TIER_PCPUS, or [tiers] pcpus")

    def look(host, **changes):
        words = ["set", host, *(f"{uuid}={tier}" for uuid, tier in changes.items())] if changes else ["list", host]
        rows = json.loads(manage("tier", *words, "-f", "json"))
        return {row["instance"]: row["tier"] for row in rows if row["pcpus"]}

    return look


@pytest.fixture
def libvirt_hosts(tiers):
    """The two libvirts of a cloud on one machine, with one pCPU each, between which machines in tiers migrate."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    site = Site.open(Path(directory)) if directory else None
    if site is None or not site.tiers or len(site.libvirts) < 2:
        pytest.skip("not a cloud of `tools/all-in-one start --libvirt-computes 2 --tiers`")
    return libvirts(site)


def placed(host, server):
    """Return the pCPUs to which libvirt pins a machine's vCPU, and whether it has more than the default shares."""

    def virsh(command, pattern):
        words = [*host.entrance, "virsh", command, server.id]
        done = subprocess.run(words, capture_output=True, text=True, timeout=HYPERVISOR_TIMEOUT_S, check=True)
        return re.search(pattern, done.stdout, re.MULTILINE).group(1)

    shares = int(virsh("schedinfo", r"cpu_shares\s*:\s*(\d+)"))
    return virsh("vcpupin", r"^\s*0\s+(\S+)\s*$"), shares > 1024  # 1024 or, in version 2 of control groups, 100


def test_a_foreground_and_a_background_share_a_host_and_swap(cloud, flavor, boot, tiers, idle):
    (front,) = cloud.active(boot(flavor("", tier="foreground"), image=idle))
    (behind,) = cloud.active(boot(flavor("", tier="background"), image=idle, host=front.compute_host))
    host = front.compute_host
    for first, second in (("foreground", "background"), ("background", "foreground")):
        wanted = {front.id: first, behind.id: second}
        if first == "background":
            tiers(host, **wanted)
        wait_until(lambda wanted=wanted: wanted.items() <= tiers(host).items(), f"{first} and {second}")
        for server, tier in ((front, first), (behind, second)):
            assert cloud.allocated(server, TIER_CLASSES[Tier(tier)]) == 1
    cloud.delete(behind, front)
    wait_until(lambda: not {front.id, behind.id} & tiers(host).keys(), "the tiers are free")


def test_an_auto_machine_behind_a_busy_foreground_is_migrated_live_to_a_free_one(
    cloud, flavor, boot, tiers, libvirt_hosts, turning
):
    here, there = libvirt_hosts
    roaming = flavor("", tier="auto", migrate=True, runtime_s=36000)
    # If it uses half of its pCPU, it leaves enough to a background; otherwise none would be placed there.
    (held,) = cloud.active(boot(roaming, image=turning(HLT), host=here))
    wait_until(lambda: tiers(here) == {held.id: "foreground"}, "the foreground, which is free, is taken")
    cloud.said(held, BORN)
    (front,) = cloud.active(boot(flavor("", tier="background"), image=turning(NOP), host=here))
    wait_until(lambda: tiers(here).keys() == {held.id, front.id}, "they share a pCPU")
    tiers(here, **{held.id: "background", front.id: "foreground"})

    wait_until(lambda: tiers(there) == {held.id: "foreground"}, "it is in the other foreground", MIGRATION_TIMEOUT_S)
    wait_until(lambda: tiers(here) == {front.id: "foreground"}, "it has left")

    def migrated():
        return [(one.migration_type, one.status) for one in cloud.compute.migrations(instance_uuid=held.id)]

    wait_until(lambda: migrated() == [("live-migration", "completed")], "Nova has migrated it once")
    (held,) = cloud.active(held)
    assert held.compute_host == there
    for server, host, pcpu in ((front, here, "0"), (held, there, "1")):
        assert cloud.allocated(server, TIER_CLASSES[Tier.FOREGROUND]) == 1
        assert cloud.allocated(server, TIER_CLASSES[Tier.BACKGROUND]) == 0
        assert cloud.allocated(server, "MEMORY_MB") == 64  # on one host
        look = partial(placed, libvirt_hosts[host], server)
        wait_until(lambda look=look, pcpu=pcpu: look() == (pcpu, True), f"{server.name} is on pCPU {pcpu}, in front")
    assert BORN not in cloud.said(held, POINT)  # the console starts again there; the guest does not
