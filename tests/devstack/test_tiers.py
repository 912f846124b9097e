"""Two machines that share a pCPU in tiers."""

import json

import pytest

from fpga_pool.model.flavor import TIER_CLASSES, Tier
from support.waiting import wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]


@pytest.fixture
def tiers(cloud, manage):
    """Return the tiers of the guests of a host by instance; those that are given are changed first."""
    answer = cloud.placement.get("/resource_providers?required=CUSTOM_FPGA_TIERS", microversion="1.29")
    # Placement refuses a trait that nobody has made.
    if not answer.ok or not answer.json()["resource_providers"]:
        pytest.skip("no pCPUs of this cloud carry tiers: FPGA_POOL_TIER_PCPUS, or [tiers] pcpus")

    def look(host, **changes):
        words = ["set", host, *(f"{uuid}={tier}" for uuid, tier in changes.items())] if changes else ["list", host]
        return {row["instance"]: row["tier"] for row in json.loads(manage("tier", *words, "-f", "json"))}

    return look


def test_a_foreground_and_a_background_share_a_host_and_swap(cloud, flavor, boot, tiers):
    (front,) = cloud.active(boot(flavor("", tier="foreground")))
    (behind,) = cloud.active(boot(flavor("", tier="background"), host=front.compute_host))
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
