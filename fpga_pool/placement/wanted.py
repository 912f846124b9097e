"""What Placement should have of a pool: one provider for each card and kind of slot, below its host's own."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import (
    NAMESPACE,
    OWNER_TRAIT,
    board_trait,
    function_trait,
    kind_trait,
    provider_name,
    provider_uuid,
)
from fpga_pool.model.objects import CPU, Host, Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedProvider:
    """The slots of one kind on one card."""

    uuid: str
    name: str
    #: Name of the root provider that it belongs below: the compute node.
    node: str
    total: int
    #: Slots that no virtual machine can get now.
    reserved: int
    traits: frozenset[str]


def wanted_providers(
    hosts: Sequence[Host],
    slots: Sequence[Slot],
    catalogue: Catalogue,
    out_of_service: Collection[str],
    not_given_up: Collection[str],
    floor_slots: int,
) -> list[WantedProvider]:
    """Return the providers of these hosts, by name.

    Parameters
    ----------
    hosts, slots, catalogue
        The pool, or a part of it.
    out_of_service
        Names of slots that nobody can use.
    not_given_up
        Names of others that the pool cannot give up soon.
    floor_slots
        So many of each provider stay the pool's: those that it cannot give up count among them.

    """
    nodes = {host.name: host.node or host.name for host in hosts}
    groups: defaultdict[tuple[str, str, str], list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.kind != CPU and slot.host in nodes:
            groups[slot.host, slot.card, slot.kind].append(slot)
    boards_and_kinds = {(group[0].board, kind) for (_, _, kind), group in groups.items()}
    traits = {(board, kind): _traits(board, kind, catalogue) for board, kind in boards_and_kinds}
    providers = []
    for (host, card, kind), group in groups.items():
        out = sum(slot.name in out_of_service for slot in group)
        busy = sum(slot.name in not_given_up for slot in group)
        providers.append(
            WantedProvider(
                uuid=provider_uuid(host, card, kind),
                name=provider_name(host, card, kind),
                node=nodes[host],
                total=len(group),
                reserved=min(len(group), out + max(busy, floor_slots)),
                traits=traits[group[0].board, kind],
            )
        )
    return sorted(providers, key=lambda provider: provider.name)


def is_of_hosts(name: str, hosts: Collection[str]) -> bool:
    """Say whether a provider has the name of one of these hosts' cards, whether that is there or not."""
    host, separator, _ = name.partition(f":{NAMESPACE}:")
    return bool(separator) and host in hosts


def _traits(board: str, kind: str, catalogue: Catalogue) -> frozenset[str]:
    functions = (function_trait(name) for name in catalogue.functions if catalogue.fits(name, board, kind))
    return frozenset((OWNER_TRAIT, board_trait(board), kind_trait(kind), *functions))
