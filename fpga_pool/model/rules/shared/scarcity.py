"""The order in which equal slots are taken: those that other functions need go last."""

from collections import Counter
from collections.abc import Iterable, Mapping

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects.pool import Lease, Slot


def scarcity_by_kind(catalogue: Catalogue, leases: Iterable[Lease]) -> Mapping[tuple[str, str], float]:
    """Return `Catalogue.scarcity` by board and kind, with the demand that these leases show."""
    return catalogue.scarcity(Counter(lease.function for lease in leases if lease.function))


def least_scarce_first(slots: Iterable[Slot], catalogue: Catalogue, leases: Iterable[Lease]) -> list[Slot]:
    """Return slots in the order in which a policy takes them where it finds no other difference.

    Slots of equal scarcity stay in order; workers and slots of boards that the catalogue does not have come first.
    """
    scarcity = scarcity_by_kind(catalogue, leases)
    return sorted(slots, key=lambda slot: scarcity.get((slot.board, slot.kind), 0.0))
