"""Cards and instances. An action on a card acts on each of its slots, all of which are in the shard of their host."""

from collections.abc import Callable, Collection, Iterable, Sequence

from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.messages.requests import Page, SlotDetail
from fpga_pool.model.objects.cards import Card, CardState, Instance, InstanceSlot, card_name, card_uuid
from fpga_pool.model.objects.history import last_event_at
from fpga_pool.model.objects.links import slot_links
from fpga_pool.model.objects.pool import Host, Lease, LeaseKind, Slot, SlotState
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.shared.changes import drain_slot, resume_slot
from fpga_pool.model.rules.shared.reconcile import CARD_GONE
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed

#: Fields by which cards can be listed.
_FIELDS = ("board", "host", "state")
_OUT = (SlotState.FAULTED, SlotState.DRAINED)


def cards(tx: Transaction, page: Page) -> list[Card]:
    """Return a page of the cards, ordered by name. Raises InvalidInput if the marker is not in the whole list."""
    if unknown := page.where.keys() - set(_FIELDS):
        raise InvalidInput(f"where: a card has no field {min(unknown)!r}")
    hosts = {host.name: host for host in tx.hosts()}
    by_card: dict[str, list[Slot]] = {}
    for slot in tx.slots():
        by_card.setdefault(card_name(slot), []).append(slot)
    found = [_card(by_card[name], hosts[by_card[name][0].host]) for name in sorted(by_card, reverse=page.descending)]
    found = [one for one in found if all(getattr(one, name) in values for name, values in page.where.items())]
    if page.since is not None:
        found = [one for one in found if any(last_event_at(slot) >= page.since for slot in one.slot_list)]
    if page.marker is None:
        return found[: page.limit]
    begin = next((place for place, one in enumerate(found, 1) if one.name == page.marker), None)
    if begin is None:
        raise InvalidInput(f"marker: no card {page.marker} in this list")
    return found[begin:][: page.limit]


def slot_detail(tx: Transaction, slot: Slot) -> SlotDetail:
    """Return a slot with its current holder."""
    lease = next(iter(tx.leases(slots=[slot.name])), None)
    if lease is None:
        return SlotDetail(slot=slot)
    found = SlotDetail(
        slot=slot,
        held_by=lease.kind,
        holder=lease.holder,
        holder_project_id=lease.project_id,
        leased_at=lease.granted_at,
    )
    if lease.kind is not LeaseKind.POOL:
        return found
    job = next(iter(tx.active_jobs(slot=slot.name)), None)
    return changed(found, holder=job.uuid if job else "", holder_project_id=job.project_id if job else "")


def leases_of_instance(tx: Transaction, uuid: str, project_id: str | None) -> list[Lease]:
    """Return the leases of an instance of a project (None = any), by slot. Raises NotFound if there are none."""
    held = (lease for lease in tx.leases(holders=[uuid]) if lease.of_instance)
    leases = [lease for lease in held if project_id in (None, lease.project_id)]
    if not leases:
        raise NotFound(f"no instance {uuid} that holds slots")
    return leases


def instance_detail(tx: Transaction, uuid: str, project_id: str | None) -> Instance:
    """Return an instance with its slots."""
    leases = leases_of_instance(tx, uuid, project_id)
    slots = tuple(
        InstanceSlot(name=one.slot, function=one.function, leased_at=one.granted_at, reason=one.broken)
        for one in leases
    )
    return Instance(uuid=uuid, project_id=leases[0].project_id, host=tx.slot(leases[0].slot).host, slot_list=slots)


def slots_of_card(tx: Transaction, uuid: str) -> list[Slot]:
    """Return the slots of a card, ordered by name. Raises NotFound if the card does not exist."""
    names = {(slot.host, slot.card): card_name(slot) for slot in tx.slots()}
    place = next((place for place, name in names.items() if card_uuid(name) == uuid), None)
    if place is None:
        raise NotFound(f"no card {uuid}")
    return [slot for slot in tx.slots(place[0]) if slot.card == place[1]]


def card_detail(tx: Transaction, uuid: str) -> Card:
    """Return a card with its slots and their users."""
    slots = slots_of_card(tx, uuid)
    return _card(slots, tx.host(slots[0].host), users_of(tx, [slot.name for slot in slots]))


def drain_card(tx: Transaction, uuid: str, reason: str, now_s: float, seen: Seen = None) -> Card:
    """Take all slots of a card out of service."""
    return _change(tx, uuid, seen, lambda slot: drain_slot(tx, slot.name, reason, now_s))


def resume_card(tx: Transaction, uuid: str, now_s: float, seen: Seen = None) -> Card:
    """Return all slots of a card to service."""
    return _change(tx, uuid, seen, lambda slot: resume_slot(tx, slot.name, now_s))


def retire_card(tx: Transaction, uuid: str, now_s: float, seen: Seen = None) -> tuple[Card, list[str]]:
    """Drain the slots of a card that is to be removed; return the card, and the obstacles to its removal."""
    slots = slots_of_card(tx, uuid)
    names = [slot.name for slot in slots]
    card = _change(tx, uuid, seen, lambda slot: retire_slots(tx, [slot], now_s))
    return card, obstacles(tx, names)


def _change(tx: Transaction, uuid: str, seen: Seen, change: Callable[[Slot], object]) -> Card:
    require_seen(card_detail(tx, uuid), seen)
    for slot in slots_of_card(tx, uuid):
        change(slot)
    return card_detail(tx, uuid)


def _card(slots: Sequence[Slot], host: Host, users: Iterable[str] = ()) -> Card:
    usable = any(slot.state not in _OUT and not slot.drain_requested for slot in slots)
    return Card(
        name=card_name(slots[0]),
        host=host.name,
        board=slots[0].board,
        enclosure=slot_links(slots[0].links).card.enclosure,
        state=CardState.UNREACHABLE if not host.alive else CardState.IN_SERVICE if usable else CardState.OUT_OF_SERVICE,
        slots=len(slots),
        drain_requested=all(slot.drain_requested for slot in slots),
        functions=tuple(sorted({slot.function for slot in slots if slot.function})),
        slot_list=tuple(slots),
        user_list=tuple(users),
        generation=sum(slot.generation for slot in slots),
    )


# ---- Removal of hardware


def retire_slots(tx: Transaction, slots: Iterable[Slot], now_s: float) -> None:
    """Drain those of the slots to be removed that their agents still report."""
    for slot in slots:
        if _is_reported(slot) and not slot.drain_requested:
            drain_slot(tx, slot.name, "removed by the operator", now_s)


def users_of(tx: Transaction, names: Collection[str]) -> list[str]:
    """Return human-readable descriptions of the leases on these slots, and of the other slots that have jobs."""
    leases = tx.leases(slots=names)
    found = [
        f"slot {lease.slot} is held by {lease.kind} {lease.holder} of project {lease.project_id}" for lease in leases
    ]
    with_jobs = tx.occupied(names) - {lease.slot for lease in leases}
    return found + [f"slot {name} has jobs" for name in sorted(with_jobs)]


def obstacles(tx: Transaction, names: Collection[str]) -> list[str]:
    """Return the reasons why these slots cannot be removed now: holders, jobs, or an agent that still reports them."""
    if users := users_of(tx, names):
        return users
    slots = [tx.slot(name) for name in names]
    there = sorted({slot.host for slot in slots if _is_reported(slot) and tx.host(slot.host).alive})
    advice = "take them out of its cards and restart it, or stop it"
    return [f"the agent of {host} reports them: {advice}" for host in there]


def _is_reported(slot: Slot) -> bool:
    return not (slot.state is SlotState.FAULTED and slot.reason == CARD_GONE)
