"""The pool's providers in a real Placement."""

import uuid
from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.flavor import OWNER_TRAIT, RESOURCE_CLASS, provider_name, provider_uuid
from fpga_pool.placement.sync import ATTEMPTS, Sync, WantedProvider


@pytest.fixture
def node(cloud):
    """A compute node: its name, and the uuid of its root provider."""
    name = f"n-{uuid.uuid4().hex[:8]}"
    return name, cloud.node(name)


@pytest.fixture
def root(node):
    return node[1]


def wanted(host, kind="small", total=2, reserved=0, node=None):
    return WantedProvider(
        uuid=provider_uuid(host, "c", kind),
        name=provider_name(host, "c", kind),
        node=node or host,
        total=total,
        reserved=reserved,
        traits=frozenset({OWNER_TRAIT, f"CUSTOM_FPGA_KIND_{kind.upper()}", "CUSTOM_FPGA_FUNCTION_AES"}),
    )


@pytest.fixture
def small(node):
    return wanted(node[0])


@pytest.fixture
def sync(client):
    return Sync(client)


@pytest.fixture
def made(sync, small, node):
    assert sync.run([small], [node[0]]) == []
    return small


class Counting:
    """A client that records which methods are called."""

    def __init__(self, client):
        self._client = client
        self.asked = []

    def __getattr__(self, name):
        def ask(*arguments):
            self.asked.append(name)
            return getattr(self._client, name)(*arguments)

        return ask


def test_providers_are_made_below_their_node(cloud, sync, small, node):
    large = wanted(node[0], "large", total=1)
    assert sync.run([large, small], [node[0]]) == []
    tree = cloud.tree(node[1])
    assert set(tree) == {small.name, large.name}
    assert tree[small.name]["uuid"] == small.uuid
    assert tree[small.name]["parent_provider_uuid"] == node[1]
    assert cloud.inventory(small.uuid) == {RESOURCE_CLASS: (2, 0)}
    assert cloud.traits(small.uuid) == small.traits
    assert small.uuid in cloud.offered("CUSTOM_FPGA_KIND_SMALL")


def test_there_are_no_providers_with_a_trait_before_it_exists(client):
    assert client.owned("CUSTOM_OWNER_OF_NOTHING") == []


def test_a_round_in_which_nothing_has_changed_is_one_request(client, small, node):
    counting = Counting(client)
    sync = Sync(counting)
    sync.run([small], [node[0]])
    counting.asked.clear()
    assert sync.run([small], [node[0]]) == []
    assert counting.asked == ["owned"]


def test_what_is_new_takes_three_requests(client, node):
    counting = Counting(client)
    sync = Sync(counting)
    sync.run([wanted(node[0], "large")], [node[0]])
    counting.asked.clear()
    providers = [replace(wanted(f"{node[0]}-{number}", "large"), node=node[0]) for number in range(2)]
    assert sync.run(providers, [f"{node[0]}-{number}" for number in range(2)]) == []
    assert counting.asked == ["owned", "named", *2 * ["create", "set_traits", "set_inventories"]]


def test_a_sync_that_begins_again_writes_nothing_that_is_right(client, cloud, made, node):
    before = cloud.tree(node[1])
    assert Sync(client).run([made], [node[0]]) == []
    assert cloud.tree(node[1]) == before


def test_changes_are_told(cloud, sync, made, node):
    assert sync.run([replace(made, reserved=2)], [node[0]]) == []
    assert cloud.inventory(made.uuid) == {RESOURCE_CLASS: (2, 2)}
    assert made.uuid not in cloud.offered("CUSTOM_FPGA_KIND_SMALL")


def test_what_was_lost_is_made_again(cloud, sync, made, node):
    cloud.ask("DELETE", f"/resource_providers/{made.uuid}")
    assert sync.run([made], [node[0]]) == []
    assert cloud.inventory(made.uuid) == {RESOURCE_CLASS: (2, 0)}
    # As after the deletion of a compute service: the whole tree is gone, and the node returns with another uuid.
    cloud.ask("DELETE", f"/resource_providers/{made.uuid}")
    cloud.ask("DELETE", f"/resource_providers/{node[1]}")
    (complaint,) = sync.run([made], [node[0]])
    assert f"Placement has no provider named {node[0]}: nova-compute has not created it yet" in complaint
    again = cloud.node(node[0])
    assert sync.run([made], [node[0]]) == []
    assert set(cloud.tree(again)) == {made.name}


def test_what_others_changed_is_put_right_and_what_is_theirs_is_left(cloud, sync, made, node):
    cloud.ask("PUT", "/traits/CUSTOM_RACK_7")
    known = cloud.ask("GET", f"/resource_providers/{made.uuid}/traits")
    cloud.ask(
        "PUT",
        f"/resource_providers/{made.uuid}/traits",
        {
            "traits": [OWNER_TRAIT, "CUSTOM_RACK_7"],
            "resource_provider_generation": known["resource_provider_generation"],
        },
    )
    assert sync.run([made], [node[0]]) == []
    assert cloud.traits(made.uuid) == made.traits | {"CUSTOM_RACK_7"}


def test_a_provider_that_lost_its_mark_gets_it_again(cloud, sync, made, node):
    known = cloud.ask("GET", f"/resource_providers/{made.uuid}/traits")
    body = {"traits": [], "resource_provider_generation": known["resource_provider_generation"]}
    cloud.ask("PUT", f"/resource_providers/{made.uuid}/traits", body)
    assert sync.run([made], [node[0]]) == []
    assert cloud.traits(made.uuid) == made.traits


def test_a_host_whose_node_is_another_takes_its_providers_along(cloud, sync, made, node):
    other = f"{node[0]}.other"
    root = cloud.node(other)
    assert sync.run([replace(made, node=other)], [node[0]]) == []
    assert set(cloud.tree(root)) == {made.name}
    assert cloud.tree(node[1]) == {}


def test_slots_that_are_gone_are_gone_from_placement(cloud, sync, made, node):
    assert sync.run([], ["another"]) == []
    assert set(cloud.tree(node[1])) == {made.name}
    assert sync.run([], [node[0]]) == []
    assert cloud.tree(node[1]) == {}


def test_what_is_not_the_pools_is_never_removed(cloud, sync, made, node):
    name = provider_name(node[0], "d", "small")
    body = {"name": name, "parent_provider_uuid": node[1]}
    cloud.ask("POST", "/resource_providers", body)
    assert sync.run([], [node[0]]) == []
    assert set(cloud.tree(node[1])) == {name}


def test_an_orphan_in_use_stays_and_is_told_of(cloud, sync, made, node):
    consumer = str(uuid.uuid4())
    cloud.allocate(consumer, {made.uuid: 1})
    (complaint,) = sync.run([], [node[0]])
    assert f"provider {made.name}: its slots no longer exist, but it cannot be removed" in complaint
    assert set(cloud.tree(node[1])) == {made.name}
    cloud.allocate(consumer, {})
    assert sync.run([], [node[0]]) == []
    assert cloud.tree(node[1]) == {}


def test_one_failure_does_not_stop_the_others(cloud, sync, small, node):
    stray = wanted(f"{node[0]}-without-node")
    large = wanted(node[0], "large", total=1)
    complaints = sync.run([stray, large, small], [node[0]])
    assert len(complaints) == 1
    assert set(cloud.tree(node[1])) == {small.name, large.name}


class Interfering:
    """A client that lets another writer precede each of its first writes, this many times."""

    def __init__(self, client, cloud, times):
        self._client, self._cloud, self.left = client, cloud, times

    def __getattr__(self, name):
        return getattr(self._client, name)

    def set_inventories(self, uuid, generation, inventories):
        if self.left:
            self.left -= 1
            known = self._cloud.ask("GET", f"/resource_providers/{uuid}/aggregates")
            self._cloud.ask("PUT", f"/resource_providers/{uuid}/aggregates", known | {"aggregates": []})
        return self._client.set_inventories(uuid, generation, inventories)


def test_a_provider_that_changes_meanwhile_is_read_again(client, cloud, small, node):
    sync = Sync(Interfering(client, cloud, ATTEMPTS))
    assert sync.run([small], [node[0]]) == []
    assert cloud.inventory(small.uuid) == {RESOURCE_CLASS: (2, 0)}


def test_one_that_never_stands_still_is_given_up_until_the_next_round(client, cloud, small, node):
    sync = Sync(Interfering(client, cloud, 1 + ATTEMPTS))  # new providers are not read before the first write
    (complaint,) = sync.run([small], [node[0]])
    assert "resource provider generation conflict" in complaint
    assert sync.run([small], [node[0]]) == []


def test_an_outage_loses_nothing(cloud, client, sync, made, node):
    with cloud.away():
        with pytest.raises(ServiceUnavailable, match="Placement does not answer"):
            sync.run([replace(made, reserved=1)], [node[0]])
        with pytest.raises(ServiceUnavailable):
            client.allocated(str(uuid.uuid4()))
    assert sync.run([replace(made, reserved=1)], [node[0]]) == []
    assert cloud.inventory(made.uuid) == {RESOURCE_CLASS: (2, 1)}


def test_what_an_instance_was_allocated(client, cloud, made):
    instance = str(uuid.uuid4())
    assert client.allocated(instance) == {}
    cloud.allocate(instance, {made.uuid: 2})
    assert client.allocated(instance) == {made.uuid: 2}
    assert client.allocations_on(made.uuid) == {instance: 2}


def test_a_provider_in_use_is_not_deleted(client, cloud, made):
    cloud.allocate(str(uuid.uuid4()), {made.uuid: 1})
    with pytest.raises(Conflict):
        client.delete(made.uuid)
