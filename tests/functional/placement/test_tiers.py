"""The pCPUs of tiers in a real Placement."""

import uuid

import pytest

from fpga_pool.model.exceptions import Conflict, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import TIER_CLASSES, TIERS_TRAIT, Tier, tiers_provider_name
from fpga_pool.placement.sync import Sync
from fpga_pool.placement.tiers import TierAccounts

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
FRONT_CLASS, BEHIND_CLASS = TIER_CLASSES[FRONT], TIER_CLASSES[BEHIND]


@pytest.fixture
def node(cloud):
    name = f"n-{uuid.uuid4().hex[:8]}"
    return name, cloud.node(name)


@pytest.fixture
def accounts(client, node):
    made = TierAccounts(client, node[0], 2)
    made.sync()
    return made


@pytest.fixture
def allocate(cloud, node, accounts):
    """Allocate as Nova does, from the tier and from the compute node itself."""
    cloud.ask("PUT", f"/resource_providers/{node[1]}/inventories", {
        "resource_provider_generation": 0, "inventories": {"VCPU": {"total": 2, "allocation_ratio": 2.0}},
    })  # fmt: skip

    def claim(name, count):
        consumer = str(uuid.uuid4())
        both = {accounts.uuid: {"resources": {name: count}}, node[1]: {"resources": {"VCPU": count}}}
        body = {"allocations": both, "consumer_generation": None, "project_id": "p", "user_id": "u"}
        cloud.ask("PUT", f"/allocations/{consumer}", body)
        return consumer

    return claim


def resources(cloud, consumer):
    found = cloud.ask("GET", f"/allocations/{consumer}")["allocations"].values()
    return sorted(given["resources"].popitem() for given in found)


def test_a_pcpu_is_one_resource_of_each_tier_below_its_node(cloud, node, accounts):
    assert set(cloud.tree(node[1])) == {tiers_provider_name(node[0])}
    assert cloud.inventory(accounts.uuid) == {FRONT_CLASS: (2, 0), BEHIND_CLASS: (2, 0)}
    assert TIERS_TRAIT in cloud.traits(accounts.uuid)


def test_a_change_of_the_pcpus_is_told_and_the_same_again_changes_nothing(cloud, client, node, accounts):
    generation = client.provider(accounts.uuid).generation
    accounts.sync()
    assert client.provider(accounts.uuid).generation == generation
    TierAccounts(client, node[0], 3).sync()
    assert cloud.inventory(accounts.uuid) == {FRONT_CLASS: (3, 0), BEHIND_CLASS: (3, 0)}


def test_a_provider_of_tiers_is_not_taken_for_slots_that_are_gone(cloud, client, node, accounts):
    assert Sync(client).run([], [node[0]]) == []
    assert set(cloud.tree(node[1])) == {tiers_provider_name(node[0])}


def test_an_unknown_node_is_told(client):
    with pytest.raises(NotFound, match=r"\[agent\] node"):
        TierAccounts(client, "nowhere", 2).sync()


def test_placement_gives_no_more_vcpus_to_a_tier_than_there_are_pcpus(accounts, allocate):
    first = allocate(FRONT_CLASS, 2)
    with pytest.raises(AssertionError):  # the error 409, which another scheduler would get
        allocate(FRONT_CLASS, 1)
    second = allocate(BEHIND_CLASS, 1)
    assert accounts.tiers() == {first: FRONT, second: BEHIND}


def test_what_is_reserved_of_the_background_is_given_to_nobody_and_swaps_go_on(cloud, accounts, allocate):
    front, behind = allocate(FRONT_CLASS, 1), allocate(BEHIND_CLASS, 1)
    accounts.sync(reserved=1)
    assert cloud.inventory(accounts.uuid) == {FRONT_CLASS: (2, 0), BEHIND_CLASS: (2, 1)}
    with pytest.raises(AssertionError):
        allocate(BEHIND_CLASS, 1)
    accounts.exchange({front: BEHIND, behind: FRONT})
    accounts.sync()
    allocate(BEHIND_CLASS, 1)
    assert accounts.tiers()[front] == BEHIND


def test_two_swap_in_full_tiers_and_keep_all_else(cloud, accounts, allocate):
    front, behind = allocate(FRONT_CLASS, 2), allocate(BEHIND_CLASS, 2)
    accounts.exchange({front: BEHIND, behind: FRONT})
    assert accounts.tiers() == {front: BEHIND, behind: FRONT}
    assert resources(cloud, front) == [(BEHIND_CLASS, 2), ("VCPU", 2)]
    assert resources(cloud, behind) == [(FRONT_CLASS, 2), ("VCPU", 2)]
    accounts.exchange({front: BEHIND, behind: FRONT})  # repeated
    assert accounts.tiers() == {front: BEHIND, behind: FRONT}


def test_a_change_without_room_changes_nobody(accounts, allocate):
    full, one, other = allocate(FRONT_CLASS, 2), allocate(BEHIND_CLASS, 1), allocate(BEHIND_CLASS, 1)
    before = accounts.tiers()
    for change in ({one: FRONT}, {one: FRONT, other: FRONT}, {full: BEHIND}):
        with pytest.raises(Conflict):
            accounts.exchange(change)
        assert accounts.tiers() == before


def test_who_has_nothing_of_the_tiers_gets_nothing(cloud, accounts):
    stranger = str(uuid.uuid4())
    accounts.exchange({stranger: FRONT})
    assert accounts.tiers() == {}
    assert cloud.ask("GET", f"/allocations/{stranger}")["allocations"] == {}


def test_while_placement_is_away_nothing_is_exchanged(cloud, accounts, allocate):
    one = allocate(BEHIND_CLASS, 1)
    with cloud.away():
        for ask in (accounts.sync, accounts.tiers, lambda: accounts.exchange({one: FRONT})):
            with pytest.raises(ServiceUnavailable):
                ask()
    assert accounts.tiers() == {one: BEHIND}
