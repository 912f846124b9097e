"""Lists of events: those of one object, for its readers, and those of all objects, newest first."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.requests import EventPage
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.history import CREATED, HistoryEntry, PoolEvent, PoolEvents, last_event_at
from fpga_pool.model.objects.pool import NEVER, PIPELINE_POLICY, Batch, Host, Job, JobState, Slot
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.batch.admission import owned_batch
from fpga_pool.model.rules.gang.admission import owned_gang
from fpga_pool.model.rules.pipeline.admission import owned_pipeline
from fpga_pool.model.rules.shared.admission import owned
from fpga_pool.model.rules.shared.cards import leases_of_instance, slots_of_card
from fpga_pool.model.rules.shared.designs import visible_design
from fpga_pool.model.rules.task.admission import owned_task
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


@dataclass(frozen=True, slots=True)
class _Parts:
    """An object that is not stored itself; only its parts are, with their histories."""

    history: tuple[HistoryEntry, ...]


def of_parts(parts: Iterable[tuple[str, Iterable[HistoryEntry]]]) -> tuple[HistoryEntry, ...]:
    """Return the events of the parts of an object in order of time, renumbered, with the part named in the reason."""
    events = sorted(((entry, name) for name, history in parts for entry in history), key=lambda one: one[0].at)
    return tuple(
        changed(entry, number=number, reason=f"{name}: {entry.reason}" if entry.reason else name)
        for number, (entry, name) in enumerate(events)
    )


def _of_instance(tx: Transaction, uuid: str, project_id: str | None) -> tuple[HistoryEntry, ...]:
    """Return the events of the current leases of an instance."""
    return of_parts((f"slot {lease.slot}", lease.history) for lease in leases_of_instance(tx, uuid, project_id))


def _of_card(tx: Transaction, uuid: str) -> tuple[HistoryEntry, ...]:
    """Return the events of the slots of a card: actions on a card are recorded on each of its slots."""
    return of_parts((f"slot {slot.name}", slot.history) for slot in slots_of_card(tx, uuid))


#: By noun, the function that reads an object for a project (None = any).
_READERS: Mapping[str, Callable[[Transaction, str, str | None], Any]] = {
    "batch": owned_batch,
    "card": lambda tx, uuid, _: _Parts(_of_card(tx, uuid)),
    "design": visible_design,
    "gang": owned_gang,
    "host": lambda tx, name, _: tx.host(name),
    "instance": lambda tx, uuid, project_id: _Parts(_of_instance(tx, uuid, project_id)),
    "job": lambda tx, uuid, project_id: owned(tx.job(uuid), project_id, "job"),
    "pipeline": owned_pipeline,
    "slot": lambda tx, name, _: tx.slot(name),
    "task": owned_task,
}


def events_of(tx: Transaction, noun: str, name: str, project_id: str | None) -> tuple[HistoryEntry, ...]:
    """Return the events of an object, oldest first; `name` is its uuid, or the name of a host or slot.

    Raises InvalidInput for an unknown noun, NotFound if the object does not belong to the project (None = any).
    """
    if noun not in _READERS:
        raise InvalidInput(f"noun: expected one of {', '.join(_READERS)}, found {noun[:64]!r}")
    found = _READERS[noun](tx, name, project_id)
    history: tuple[HistoryEntry, ...] = found.history
    return (*_creation_of(tx.batch(found.batch_uuid)), *history) if isinstance(found, Job) else history


def _creation_of(batch: Batch) -> tuple[HistoryEntry, ...]:
    """Return the creation event of a batch as that of each of its jobs, for which it is not stored separately."""
    return tuple(changed(entry, after=str(JobState.PENDING)) for entry in batch.history if entry.event == CREATED)


# ---- Events of all objects

#: Class of the objects of each kind.
CLASSES: Mapping[str, type] = {
    "batch": Batch, "design": Design, "gang": Gang, "host": Host, "job": Job, "pipeline": Batch, "slot": Slot,
    "task": Task,
}  # fmt: skip
#: Maximum number of objects read by one request, not counting those whose last event is at or after its marker.
MOST_READ = 5000

#: Sort key of an event: time, kind, key of the object, and number of the event.
Position = tuple[float, str, str, int]
#: Sorts after every kind.
_LAST = "~"


def classes_of(wanted: EventPage) -> list[type]:
    """Return the classes of the objects that may have such events. Raises InvalidInput for an unknown kind."""
    if unknown := set(wanted.kind) - CLASSES.keys():
        raise InvalidInput(f"kind: expected one of {', '.join(CLASSES)}, found {min(unknown)[:20]!r}")
    found = dict.fromkeys(CLASSES[kind] for kind in wanted.kind or CLASSES)
    return [
        cls
        for cls in found
        if (wanted.project_id is None or cls not in (Host, Slot)) and (not wanted.host or cls in (Host, Slot, Job))
    ]


def begin_before(wanted: EventPage) -> float:
    """Return the time before which all objects with events on a page must have been created."""
    moments = [wanted.until, _read(wanted.marker)[0] if wanted.marker else None]
    return min((at for at in moments if at is not None), default=float("inf"))


def newest_events(streams: Iterable[Iterator[Any]], wanted: EventPage) -> PoolEvents:
    """Return a page of events; each stream yields its objects in decreasing order of their last event.

    Reading stops at the first object that cannot have an event on the page.
    """
    before = _read(wanted.marker) if wanted.marker else None
    newest: list[tuple[Position, PoolEvent]] = []
    read = 0
    for thing in heapq.merge(*streams, key=last_event_at, reverse=True):
        at = last_event_at(thing)
        if len(newest) == wanted.limit and newest[0][0][0] > at:
            break
        read += before is None or at < before[0]
        if read > MOST_READ:  # leave older events to the next page
            kept = sorted((one for one in newest if one[0][0] > at), reverse=True)
            return PoolEvents(events=tuple(event for _, event in kept), next=_marker((at, _LAST, "", 0)))
        for position, event in _events_in(thing, wanted):
            if before is None or position < before:
                heapq.heappush(newest, (position, event))
                if len(newest) > wanted.limit:
                    heapq.heappop(newest)
    newest.sort(key=lambda one: one[0], reverse=True)
    full = len(newest) == wanted.limit
    return PoolEvents(events=tuple(event for _, event in newest), next=_marker(newest[-1][0]) if full else "")


def _events_in(thing: Any, wanted: EventPage) -> Iterator[tuple[Position, PoolEvent]]:
    """Yield the events of an object that match the request, regardless of the marker."""
    kind = next(kind for kind, cls in CLASSES.items() if cls is type(thing))
    if isinstance(thing, Batch) and thing.policy == PIPELINE_POLICY:
        kind = "pipeline"
    if wanted.kind and kind not in wanted.kind:
        return
    uuid = getattr(thing, "uuid", "")
    host = thing.name if isinstance(thing, Host) else getattr(thing, "host", "")
    for entry in thing.history:
        at = datetime.fromtimestamp(entry.at, UTC).timestamp()  # rounded as in answers
        if (wanted.since is not None and at < wanted.since) or (wanted.until is not None and at >= wanted.until):
            continue
        if not wanted.event or entry.event in wanted.event:
            project_id = getattr(thing, "project_id", "")
            event = PoolEvent(kind=kind, uuid=uuid, name=thing.name, project_id=project_id, host=host, entry=entry)
            yield (entry.at, kind, uuid or thing.name, entry.number), event


def _marker(position: Position) -> str:
    at, kind, key, number = position
    return f"{at!r} {kind} {number} {key}"


def _read(marker: str) -> Position:
    try:
        at, kind, number, key = marker.split(" ", 3)
        position = float(at), kind, key, int(number)
    except ValueError:
        position = (NEVER, "", "", 0)
    if not 0 <= position[0] < NEVER:
        raise InvalidInput(f"marker: expected that of a link to the next page, found {marker[:64]!r}")
    return position
