"""Explanations for operators why a host can or cannot take an instance."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.topology import Links
from fpga_pool.core.types import Ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import NAMESPACE, RESOURCE_CLASS, requested
from fpga_pool.model.objects.links import wished_links
from fpga_pool.model.objects.pool import LeaseKind
from fpga_pool.model.rules.instance.fitting import (
    EMPTY,
    EVICTION,
    LOADED,
    NOT_HAD,
    OTHER,
    PLANNED,
    Fitting,
    HostCandidates,
    SlotCandidates,
)
from fpga_pool.model.rules.instance.linking import largest_linked
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers


def on_one_card(extra_specs: Mapping[str, str]) -> bool:
    """Return whether a flavor needs all slots on one card, because it requests them in at most one resource group."""
    return sum(bool(re.fullmatch(f"resources[^:]*:{RESOURCE_CLASS}", name)) for name in extra_specs) <= 1


def explain_host(
    fitting: Fitting, host: str, count: int, *, together: bool = True, links: Links = Links.ANY
) -> tuple[bool, str]:
    """Return whether a host has `count` available slots with these links (`together`: on one card), and why."""
    providers = fitting.providers.of_host.get(host)
    if providers is None:
        return False, "the pool has no slots on this host"
    rows = np.flatnonzero(np.isin(fitting.providers.of_slot, np.array(providers)))
    fits = rows[fitting.fits[rows]]
    if not len(fits):
        return False, f"none of its {len(rows)} slots can hold {fitting.function}"
    free = fits[fitting.had[fits]]
    said = "; ".join((f"{len(free)} of {_slots(len(fits))} available", *_kinds(fitting, fits, free)))
    most = int(fitting.free[providers.start : providers.stop].max()) if together else len(free)
    if most < count:
        why = f"{count} requested on one card, at most {most} available" if together else f"{count} requested"
        return False, f"{said}; {why}"
    slot_candidates = fitting.slot_candidates.of(host)
    linked = count if links == Links.ANY else _most_linked(slot_candidates, count, links, together=together)
    if linked == count:
        return True, said
    where = " on one card" if together else ""
    return False, f"{said}; no {links.name.lower()} of {count} free{where}: at most {linked} have these links"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a host that weighers use, for the slots of one provider that an instance would get there."""

    #: Benefit added to the pool, in vCPU equivalents.
    benefit: float
    #: Seconds until the instance completes, including the load.
    completion_s: float
    #: How much later all instances complete, including future ones: see `Fitting.latenesses`.
    lateness: float
    #: How much other functions need these slots, 0 to 1.
    scarcity: float
    #: Seconds of the host's ingress that are already planned; the input of the instance follows them.
    ingress_s: float


def host_terms(fitting: Fitting, host: str, count: int) -> Terms | None:
    """Return the terms of a host; None if none of its providers has `count` available slots."""
    rows = fitting.providers.of_host.get(host, range(0))
    prices = fitting.prices(count)
    if not len(rows) or prices[rows.start : rows.stop].min() == NOT_HAD:
        return None
    row = rows.start + int(prices[rows.start : rows.stop].argmin())
    return Terms(
        benefit=float(fitting.firsts(fitting.gains, count)[row]),
        completion_s=float(fitting.completions_s(count)[row]),
        lateness=float(fitting.latenesses(count)[row]),
        scarcity=float(fitting.scarcity[row]),
        ingress_s=0.0 if fitting.ingress is None else float(fitting.ingress[0, row]),
    )


def larger_than_hosts(pool: PoolColumns, catalogue: Catalogue, extra_specs: Mapping[str, str]) -> str | None:
    """Return why no host has as many slots as a flavor requests, available or not.

    None if a host has them, or if no host has any slot for the function, since its cards may be added later.
    """
    wanted = requested(extra_specs)
    if wanted is None:
        return None
    fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s=1.0)
    candidates = HostCandidates(fitting.providers, fitting.fits, fitting.cost)
    alike = {id(slots): slots for slots in map(candidates.of, fitting.providers.hosts.rows)}
    together = on_one_card(extra_specs)
    sizes = [_most_linked(slots, wanted.count, wished_links(wanted), together=together) for slots in alike.values()]
    most = max(sizes, default=0)
    if most in (0, wanted.count):
        return None
    return f"{NAMESPACE}:count: no host has {wanted.what} for {wanted.function}, at most {most}"


def _most_linked(slot_candidates: SlotCandidates, count: int, links: Links, *, together: bool) -> int:
    """Return how many slots of a host, up to `count`, have these links (`together`: within one provider)."""
    providers = {slot_candidate.provider for slot_candidate in slot_candidates} if together else {None}
    parts = [
        [slot_candidate for slot_candidate in slot_candidates if provider in (None, slot_candidate.provider)]
        for provider in providers
    ]
    return max((largest_linked(part, links, count + 1) for part in parts), default=0)


def _kinds(fitting: Fitting, fits: Ints, free: Ints) -> Iterator[str]:
    """Describe the slots by number and state: the available ones first, then the others."""
    cost = fitting.cost[free]
    for count, what in (
        (cost == LOADED, f"with {fitting.function} loaded"),
        (cost == EMPTY, "empty"),
        (cost == OTHER, "with another function loaded"),
        (cost == PLANNED, "with planned jobs"),
        (cost >= EVICTION, "running a job of the pool that would be evicted"),
    ):
        if found := int(count.sum()):
            yield f"{found} {what}"
    pool = fitting.providers.pool
    taken = fits[~fitting.had[fits]]
    out = ~pool.in_service[taken]
    instance = pool.slots["lease"][taken] == pool.numbers.get(LeaseKind.INSTANCE, -1)
    kept = fitting.kept[taken]
    for count, what in (
        (out, "out of service"),
        (~out & instance, "held by an instance"),
        (~out & kept, "running a job that cannot be preempted"),
        (~out & ~instance & ~kept, "held by other leases"),
    ):
        if found := int(count.sum()):
            yield f"{found} {what}"


def _slots(count: int) -> str:
    return "1 matching slot" if count == 1 else f"{count} matching slots"
