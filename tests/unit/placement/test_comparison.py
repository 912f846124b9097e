import pytest

from fpga_pool.model.objects.pool import Lease, LeaseKind
from fpga_pool.placement.client import Consumer, Provider
from fpga_pool.placement.sync import Allocations, Differences, differences, leaked


def lease(slot, holder="vm", project="p"):
    return Lease(
        uuid=f"lease of {slot}", slot=slot, kind=LeaseKind.INSTANCE, holder=holder, project_id=project, epoch=1,
        revocable=False, granted_at=0.0,
    )  # fmt: skip


ONE, TWO = lease("h0/c/r0"), lease("h0/c/r1")


def test_what_is_held_and_allocated_agrees():
    assert differences({"card": [ONE, TWO]}, {"card": {"vm": 2}}) == Differences(unallocated=[], unheld={})


def test_a_lease_more_than_allocated_is_found():
    assert differences({"card": [ONE, TWO]}, {"card": {"vm": 1}}).unallocated == [TWO]
    assert differences({"card": [ONE]}, {"card": {"other": 1}}).unallocated == [ONE]


def test_an_allocation_more_than_held_is_found():
    found = differences({"card": [ONE]}, {"card": {"vm": 3, "other": 1}, "idle": {"third": 1}})
    assert found.unheld == {("card", "vm"): 2, ("card", "other"): 1, ("idle", "third"): 1}


def test_of_a_provider_that_placement_does_not_have_nothing_is_said():
    assert differences({"card": [ONE]}, {}) == Differences(unallocated=[], unheld={})


class Placement:
    """A Placement with given contents, which counts the requests for allocations."""

    def __init__(self):
        self.generations = {"card": 1}
        self.given = {}
        self.consumers = {}
        self.asked = 0

    def owned(self):
        return [
            Provider(uuid=uuid, name=uuid, generation=generation, parent="root")
            for uuid, generation in self.generations.items()
        ]

    def allocations_on(self, uuid):
        self.asked += 1
        return self.given.get(uuid, {})

    def consumer(self, uuid):
        return self.consumers.get(uuid, Consumer("", {}))


@pytest.fixture
def placement():
    return Placement()


def test_a_provider_that_gives_nothing_is_asked_only_when_it_has_changed(placement):
    allocations = Allocations(placement)
    assert allocations.on(["card", "unknown"], {}) == {"card": {}}
    assert allocations.on(["card"], {}) == {"card": {}}
    assert placement.asked == 1
    placement.generations["card"] = 2
    placement.given["card"] = {"vm": 1}
    # A provider with allocations is queried each time, since a removed allocation does not change its generation.
    assert [allocations.on(["card"], {}) for _ in range(2)] == [{"card": {"vm": 1}}] * 2
    assert placement.asked == 3


def test_a_provider_of_which_something_is_held_is_asked_each_time(placement):
    allocations = Allocations(placement)
    for _ in range(2):
        assert allocations.on(["card"], {"card": [ONE]}) == {"card": {}}
    assert placement.asked == 2


@pytest.fixture
def leaks(placement):
    def leaks(held, given):
        found = differences(held, given)
        return leaked(placement, found, {lease.slot: name for name, leases in held.items() for lease in leases})

    return leaks


def test_the_lease_of_a_machine_that_has_nothing_any_more_leaks(leaks):
    # Other allocations without a lease do not matter: a deleted machine cannot be migrating.
    assert leaks({"card": [ONE]}, {"card": {"stopped": 1}}) == [ONE]


def test_the_lease_of_a_machine_that_moves_is_covered_by_its_migration(placement, leaks):
    placement.consumers = {"vm": Consumer("p", {"elsewhere": 1}), "migration": Consumer("p", {"card": 1})}
    assert leaks({"card": [ONE]}, {"card": {"migration": 1}}) == []
    assert leaks({"card": [ONE]}, {"card": {}}) == [ONE]


def test_nobody_elses_allocation_covers_a_lease(placement, leaks):
    placement.consumers = {"vm": Consumer("p", {"elsewhere": 1}), "other": Consumer("q", {"card": 1})}
    assert leaks({"card": [ONE]}, {"card": {"other": 1}}) == [ONE]
