"""Claims over the transport, on a real database. Tests set the allocations of Placement."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fpga_pool.model.exceptions import Conflict, HostTaken, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import AcceleratorRequest, Topology, provider_uuid
from fpga_pool.model.rules.shared.columns import PoolColumns

SHA = AcceleratorRequest(function="sha256")


@pytest.fixture
def agent(running):
    return running.host()


def generations(leases):
    return {lease.uuid: lease.generation for lease in leases}


def test_a_claim_is_held_by_the_agent_until_it_is_released(running, agent, until):
    two = AcceleratorRequest(function="sha256", count=2)
    slots = running.api.claim_slots(agent.name, agent.name, "vm", "p", two)
    names = [slot.name for slot in slots]
    assert names == [f"{agent.name}/c/r0", f"{agent.name}/c/r1"]
    until(lambda: agent.kept == dict.fromkeys(names, "vm"))
    leases = running.api.instance_leases(agent.name)
    assert {vm: [lease.slot for lease in held] for vm, held in leases.items()} == {"vm": names}
    for _ in range(2):
        running.api.release_slots(agent.name, agent.name, generations(leases["vm"]))
    until(lambda: agent.kept == {})
    assert running.api.instance_leases(agent.name) == {}


def test_a_late_release_takes_nothing_that_was_claimed_since(running, agent):
    """The releasing call has timed out, the machine has started again, and only then a stalled scheduler continues."""
    running.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    late = generations(running.api.instance_leases(agent.name)["vm"])
    running.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    running.api.release_slots(agent.name, agent.name, late)
    [kept] = running.api.instance_leases(agent.name)["vm"]
    assert late == {kept.uuid: kept.generation - 1}


def test_an_agent_releases_nothing_of_another_host(running, agent):
    running.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    other = running.host()
    leases = running.api.instance_leases(agent.name)
    running.api.release_slots(other.name, other.name, generations(leases["vm"]))
    assert running.api.instance_leases(agent.name) == leases


def test_only_the_agent_of_a_host_claims_and_releases(running, agent):
    with pytest.raises(HostTaken):
        running.api.claim_slots(agent.name, "somebody", "vm", "p", SHA)
    with pytest.raises(HostTaken):
        running.api.release_slots(agent.name, "somebody", {})
    with pytest.raises(NotFound, match="no host nowhere"):
        running.api.claim_slots("nowhere", agent.name, "vm", "p", SHA)


def test_two_boots_never_get_one_slot(running, agent):
    large = AcceleratorRequest(function="optical_flow")
    running.api.claim_slots(agent.name, agent.name, "vm", "p", large)
    with pytest.raises(Conflict, match="1 are held by virtual machines"):
        running.api.claim_slots(agent.name, agent.name, "other", "p", large)


def test_of_many_boots_at_once_as_many_get_slots_as_there_are(running, agent):
    def boot(instance):
        try:
            return [slot.name for slot in running.api.claim_slots(agent.name, agent.name, instance, "p", SHA)]
        except Conflict:
            return []

    with ThreadPoolExecutor(8) as boots:
        found = list(boots.map(boot, [f"vm{number}" for number in range(8)]))
    got = [name for names in found for name in names]
    assert sorted(got) == [f"{agent.name}/c/{region}" for region in ("r0", "r1", "r2")]


def test_no_job_is_placed_on_what_an_instance_holds(running, agent, until):
    for i in range(3):
        running.api.claim_slots(agent.name, agent.name, f"vm{i}", "p", SHA)
    batch = running.create(agent, "sha256")
    other = running.host()
    until(lambda: [job.host for job in running.jobs(batch)] == [other.name])


def test_slots_are_linked_as_agents_tell_and_a_claim_of_others_is_refused(running, agent, until):
    agent.links = {region: f"- full 1 0 line 3 {number}" for number, region in enumerate(("r0", "r1", "r2"))}
    running.api.heartbeat(agent.heartbeat(running.clock()))
    told = PoolColumns.from_plain(running.api.snapshot())
    assert [told.words[number] for number in told.slots["links"]] == list(agent.links.values())
    ring, line = (
        AcceleratorRequest(function="sha256", count=3, topology=kind) for kind in (Topology.RING, Topology.LINE)
    )
    with pytest.raises(Conflict, match="at most 2 have these links"):
        running.api.claim_slots(agent.name, agent.name, "vm", "p", ring)
    assert running.api.instance_leases(agent.name) == {}
    assert len(running.api.claim_slots(agent.name, agent.name, "vm", "p", line)) == 3


def test_a_claim_gets_what_placement_has_allocated(with_placement, placement):
    agent = with_placement.host()
    with pytest.raises(Conflict, match="Placement has allocated 0 slots"):
        with_placement.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    placement.known["vm"] = {provider_uuid(agent.name, "c", "large"): 1}
    slots = with_placement.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    assert [slot.region for slot in slots] == ["r2"]


def test_while_placement_is_away_only_what_is_held_already_can_be_claimed(with_placement, placement):
    agent = with_placement.host()
    placement.known["vm"] = {provider_uuid(agent.name, "c", "small"): 1}
    held = with_placement.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    placement.away = True
    again = with_placement.api.claim_slots(agent.name, agent.name, "vm", "p", SHA)
    assert [slot.name for slot in again] == [slot.name for slot in held]
    [lease] = with_placement.api.instance_leases(agent.name)["vm"]
    assert lease.generation == 1  # a late release of the earlier claim does not take it
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        with_placement.api.claim_slots(agent.name, agent.name, "other", "p", SHA)
