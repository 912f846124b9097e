"""Slots held by virtual machines: claimed at boot, released at the end, and compared with what agents reserve.

The slots of a virtual machine are chosen in three steps: Placement allocates their number by card and kind, this module
chooses single slots among these, and the host's agent loads and reserves them.  A claim takes slots from the pool's own
jobs and tasks, which continue elsewhere. It never takes slots that another virtual machine holds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fpga_pool.core.lattice.topology import Links
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict, InvalidCatalogue
from fpga_pool.model.flavor import AcceleratorRequest, provider_uuid
from fpga_pool.model.lifecycle.job import Displaced, EvictRequested
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot, ObservedSlot
from fpga_pool.model.objects.links import slot_links, wished_links
from fpga_pool.model.objects.pool import CPU, JobState, Lease, LeaseKind, Slot, SlotState
from fpga_pool.model.rules.batch.placing import held_by_instances, scarcity_by_kind, usable
from fpga_pool.model.rules.instance.costs import bound_by_tasks, cost_of, jobs_by_slot, leaves_in_s, must_stay, price_of
from fpga_pool.model.rules.instance.linking import SlotCandidate, choose_candidates, largest_linked
from fpga_pool.model.rules.shared.changes import change_job, displace_task, end_lease, new_lease, send, settle_slots
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

#: Number of slots by the uuid of their provider in Placement.
Allocated = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The slots that one virtual machine requests of one host."""

    host: str
    instance: str
    project_id: str
    wanted: AcceleratorRequest
    #: Slots that Placement has allocated to it; None = Placement is not used, and any slot of the host can be chosen.
    allocated: Allocated | None = None


def provider_of(slot: Slot) -> str:
    """Return the uuid of the provider of a slot in Placement."""
    return provider_uuid(slot.host, slot.card, slot.kind)


def held_by(tx: Transaction, host: str, instance: str) -> list[Lease]:
    """Return the leases of a virtual machine on slots of a host, by slot."""
    return [lease for lease in instance_leases(tx, host) if lease.holder == instance]


def instance_leases(tx: Transaction, host: str) -> list[Lease]:
    """Return the leases of virtual machines on slots of a host, by slot."""
    return [lease for lease in tx.leases(host=host) if lease.of_instance]


def claim_slots(
    tx: Transaction, claim: Claim, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> list[Slot]:
    """Give a virtual machine its slots, and command the host's agent to reserve them; return the slots by name.

    A claim can be repeated: slots that the virtual machine already holds are kept if they still fit the request,
    otherwise released.  A kept lease gets a new generation, so that a release requested earlier does not end it.

    Raises
    ------
    UnknownFunction
        If the catalogue does not have the function.
    Conflict
        If the host does not have enough available slots, or none with the required links; then nothing is changed.

    """
    wanted = claim.wanted
    catalogue.function(wanted.function)
    kept, given_back = _kept(tx, claim)
    chosen: list[Slot] = []
    if len(kept) < wanted.count or not _are_linked(tx, kept, wanted):
        offered = _offered(tx, claim, catalogue, settings, now_s)
        if not wanted.linked:
            chosen = _choose(tx, claim, kept, wanted.count - len(kept), offered)
        else:
            names = {slot.name for slot in _choose_linked(tx, claim, kept, offered)}
            given_back += [lease for lease in kept if lease.slot not in names]
            kept = [lease for lease in kept if lease.slot in names]
            chosen = [tx.slot(name) for name in sorted(names - {lease.slot for lease in kept})]
    _free(tx, given_back, now_s)
    for lease in kept:
        tx.save(lease)
    for slot in chosen:
        _take(tx, slot, catalogue, settings, now_s)
        lease = new_lease(
            tx,
            slot.name,
            LeaseKind.INSTANCE,
            claim.instance,
            now_s,
            project_id=claim.project_id,
            function=wanted.function,
        )
        tx.add(lease)
        send(tx, slot.name, _hold(lease))
    return [tx.slot(name) for name in sorted([lease.slot for lease in kept] + [slot.name for slot in chosen])]


def release_slots(tx: Transaction, leases: Sequence[Lease], now_s: float) -> list[Lease]:
    """Release leases of virtual machines, which may have been read some time ago; return those that were released.

    A lease that has ended, changed, or been claimed again since it was read stays as it is.
    """
    in_force = {lease.uuid: lease.generation for lease in tx.leases(slots=[lease.slot for lease in leases])}
    same = [lease for lease in leases if in_force.get(lease.uuid) == lease.generation]
    _free(tx, same, now_s)
    return same


def compare_hold(
    tx: Transaction, observed: ObservedSlot, lease: Lease | None, now_s: float, *, new: bool, settled: bool
) -> str:
    """Reconcile the holder of a slot (`lease`, of a virtual machine) with the instance for which its agent reserves it.

    Returns what differed, "" = nothing.

    If the slot is new to the database (`new`), the virtual machine for which the agent reserves it gets the lease: the
    database was lost, not the machine.  Otherwise the database is right, once the agent has executed its commands
    (`settled`).
    """
    holder = "" if lease is None else lease.holder
    if holder == observed.instance:
        return ""
    if new:
        adopted = new_lease(tx, observed.slot, LeaseKind.INSTANCE, observed.instance, now_s, function=observed.function)
        tx.add(adopted)
        return f"its agent reserves it for instance {observed.instance}, which therefore holds it"
    if not settled or observed.state is SlotState.FAULTED:
        return ""
    if lease is not None:
        send(tx, observed.slot, _hold(lease))
        return f"instance {holder} holds it, but its agent reserves it for {observed.instance or 'none'}"
    epoch = tx.slot(observed.slot).lease_epoch
    send(tx, observed.slot, FreeSlot(instance=observed.instance, lease_epoch=epoch))
    return f"its agent reserves it for instance {observed.instance}, which does not hold it"


def not_to_be_had(
    tx: Transaction, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> tuple[set[str], set[str]]:
    """Return the slots that no virtual machine holds or can get: those out of service, and those busy for too long."""
    leases = tx.leases()
    held = {lease.slot for lease in leases if lease.of_instance}
    queues = jobs_by_slot(tx.active_jobs(), leases)
    bound = bound_by_tasks(queues, leases, catalogue, settings)
    out, busy, patience_s = set(), set(), settings.claim_patience_s
    for slot in tx.slots():
        if slot.kind == CPU or slot.name in held:
            continue
        if not usable(slot, tx.host(slot.host), set()):
            out.add(slot.name)
        elif slot.name in bound or leaves_in_s(queues[slot.name], catalogue, settings, now_s) > patience_s:
            busy.add(slot.name)
    return out, busy


def _kept(tx: Transaction, claim: Claim) -> tuple[list[Lease], list[Lease]]:
    """Divide the leases of a virtual machine into those that still fit its request and the others."""
    left = Counter(claim.allocated or {})
    kept: list[Lease] = []
    given_back = []
    for lease in held_by(tx, claim.host, claim.instance):
        provider = provider_of(tx.slot(lease.slot))
        allocated = claim.allocated is None or left[provider] > 0
        if lease.function == claim.wanted.function and allocated and len(kept) < claim.wanted.count:
            left[provider] -= 1
            kept.append(lease)
        else:
            given_back.append(lease)
    return kept, given_back


def _are_linked(tx: Transaction, leases: Sequence[Lease], wanted: AcceleratorRequest) -> bool:
    """Return whether the slots of these leases are linked as requested."""
    if not wanted.linked:
        return True
    candidates = [_candidate(tx.slot(lease.slot), 0.0) for lease in leases]
    return choose_candidates(candidates, wished_links(wanted), len(candidates)) is not None


@dataclass(frozen=True, slots=True)
class _Offered:
    """Slots of a host for a claim: those that fit, and those available now, cheapest first, with their prices."""

    fitting: Sequence[Slot]
    possible: Sequence[Slot]
    prices: Sequence[tuple[int, float, int]]
    #: Slots held by virtual machines.
    foreign: set[str]


def _offered(tx: Transaction, claim: Claim, catalogue: Catalogue, settings: PoolSettings, now_s: float) -> _Offered:
    fitting = [slot for slot in tx.slots(claim.host) if _fits(slot, claim, catalogue)]
    leases = tx.leases(host=claim.host)
    foreign = held_by_instances(leases)
    queues = jobs_by_slot(tx.active_jobs(host=claim.host), leases)
    bound = bound_by_tasks(queues, leases, catalogue, settings)
    function = claim.wanted.function
    scarcity = scarcity_by_kind(catalogue, leases)
    priced = [
        (price_of(slot, queues[slot.name], function, catalogue, now_s), slot.name, slot)
        for slot in fitting
        if usable(slot, tx.host(slot.host), foreign | bound)
        and leaves_in_s(queues[slot.name], catalogue, settings, now_s) <= settings.claim_patience_s
    ]

    def order(offer: tuple[tuple[int, float, int], str, Slot]) -> tuple[bool, float, tuple[int, float, int], str]:
        """Return the sort key: slots without jobs to evict first, then the least needed by other functions."""
        price, name, slot = offer
        return price[2] > 0, scarcity[slot.board, slot.kind], price, name

    priced.sort(key=order)
    return _Offered(fitting, [slot for *_, slot in priced], [price for price, *_ in priced], foreign)


def _choose(tx: Transaction, claim: Claim, kept: Sequence[Lease], count: int, offered: _Offered) -> list[Slot]:
    """Return the slots that cost the pool least. Raises Conflict if there are not enough."""
    chosen = _within(offered.possible, claim.allocated, [tx.slot(lease.slot) for lease in kept], count)
    if len(chosen) < count:
        raise Conflict(_refusal(tx, claim, offered.fitting, offered.possible, offered.foreign))
    return chosen


def _choose_linked(tx: Transaction, claim: Claim, kept: Sequence[Lease], offered: _Offered) -> list[Slot]:
    """Return all slots of a claim, linked as requested, among those that Placement allows.

    Slots that are already held are preferred.  Raises Conflict if there are no such slots.
    """
    wanted = claim.wanted
    held = [tx.slot(lease.slot) for lease in kept]
    slots = [*held, *offered.possible]
    costs = [-1.0] * len(held) + [cost_of(price) for price in offered.prices]
    candidates = [_candidate(slot, cost) for slot, cost in zip(slots, costs, strict=True)]
    allocated = None
    if claim.allocated is not None:
        own = {provider_of(slot) for slot in tx.slots(claim.host)}
        allocated = {provider: count for provider, count in claim.allocated.items() if provider in own}
    found = choose_candidates(candidates, wished_links(wanted), wanted.count, allocated)
    if found is not None:
        return [slots[index] for index in found]
    if choose_candidates(candidates, Links.ANY, wanted.count, allocated) is None:
        raise Conflict(_refusal(tx, claim, offered.fitting, offered.possible, offered.foreign))
    allowed = "" if claim.allocated is None else " and are allocated in Placement"
    most = largest_linked(candidates, wished_links(wanted), wanted.count)
    raise Conflict(
        f"host {claim.host}: {wanted.what} for {wanted.function} is requested; of the {len(candidates)} slots that are"
        f" available{allowed} at most {most} have these links"
    )


def _candidate(slot: Slot, cost: float) -> SlotCandidate:
    return SlotCandidate(slot.card, provider_of(slot), slot_links(slot.links), cost)


def _fits(slot: Slot, claim: Claim, catalogue: Catalogue) -> bool:
    asked = claim.allocated is None or claim.allocated.get(provider_of(slot), 0) > 0
    return slot.kind != CPU and asked and catalogue.fits(claim.wanted.function, slot.board, slot.kind)


def _within(slots: Iterable[Slot], allocated: Allocated | None, kept: Iterable[Slot], count: int) -> list[Slot]:
    """Return the first `count` slots, at most as many per provider as are allocated in addition to the kept ones."""
    left = Counter(allocated or {})
    left.subtract(Counter(map(provider_of, kept)))
    chosen: list[Slot] = []
    for slot in slots:
        provider = provider_of(slot)
        if len(chosen) < count and (allocated is None or left[provider] > 0):
            left[provider] -= 1
            chosen.append(slot)
    return chosen


def _refusal(
    tx: Transaction, claim: Claim, fitting: Sequence[Slot], possible: Sequence[Slot], foreign: set[str]
) -> str:
    """Return the reason why a host cannot provide the requested slots."""
    wanted, host = claim.wanted, tx.host(claim.host)
    if not host.alive:
        return f"host {host.name}: its agent is lost, none of its slots is available"
    if claim.allocated is not None:
        own = {provider_of(slot) for slot in tx.slots(host.name)}
        allocated = sum(count for provider, count in claim.allocated.items() if provider in own)
        if allocated < wanted.count:
            return (
                f"instance {claim.instance}: Placement has allocated {allocated} slots of host {host.name} to it, its "
                f"flavor requests {wanted.count}"
            )
    held = sum(slot.name in foreign for slot in fitting)
    return (
        f"host {host.name}: {wanted.count} slots for {wanted.function} are requested; of the {len(fitting)} slots that "
        f"fit{'' if claim.allocated is None else ' and are allocated in Placement'} {held} are held by virtual "
        f"machines and {len(possible)} are available; the others are out of service, or busy with jobs that cannot be "
        "stopped"
    )


def _take(tx: Transaction, slot: Slot, catalogue: Catalogue, settings: PoolSettings, now_s: float) -> None:
    """Evict the pool's work from a slot, and end the pool's lease on it.

    A job whose input the agent holds keeps it, and perhaps its progress; it leaves the slot when its agent reports so.
    A job that cannot be stopped ends on the slot, and the agent reserves the slot for the instance only after that.
    """
    for lease in tx.leases(slots=[slot.name]):
        if lease.kind is LeaseKind.TASK:
            displace_task(tx, lease.holder, f"slot {slot.name} was claimed for a virtual machine", now_s)
    for job in tx.active_jobs(slot=slot.name):
        if must_stay(job, catalogue, settings):
            continue
        if job.state is JobState.WAITING_INPUT:
            displaced = Displaced(reason=f"slot {slot.name} was claimed for a virtual machine")
            change_job(tx, job, displaced, now_s, settle=False)
        else:
            function = catalogue.functions.get(job.function)
            keep = function is not None and function.progress_kept
            change_job(tx, job, EvictRequested(keep_progress=keep), now_s, settle=False)
    for lease in tx.leases(slots=[slot.name]):
        end_lease(tx, lease, now_s)


def _free(tx: Transaction, leases: Sequence[Lease], now_s: float) -> None:
    for lease in leases:
        end_lease(tx, lease, now_s)
        send(tx, lease.slot, FreeSlot(instance=lease.holder, lease_epoch=lease.epoch))
    settle_slots(tx, [lease.slot for lease in leases], now_s)


def _hold(lease: Lease) -> HoldSlot:
    return HoldSlot(
        instance=lease.holder, project_id=lease.project_id, function=lease.function, lease_epoch=lease.epoch
    )


def check_functions_in_use(leases: Iterable[Lease], catalogue: Catalogue) -> None:
    """Raise InvalidCatalogue, naming the instances, if the catalogue lacks a function that instances hold slots for."""
    users: dict[str, set[str]] = {}
    for lease in leases:
        if lease.of_instance and lease.function and lease.function not in catalogue.functions:
            users.setdefault(lease.function, set()).add(lease.holder)
    if users:
        found = "; ".join(f"{function} by {', '.join(sorted(holders))}" for function, holders in sorted(users.items()))
        raise InvalidCatalogue(f"the catalogue lacks functions that instances use: {found}; delete the instances first")
