"""The history of an object: its events, oldest first, kept with the object and removed with it.

An event is stored by the transaction that changes the object, in the object's own row: it costs no further statement.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Flat, Moment
from fpga_pool.model.values import changed

T = TypeVar("T")

#: How many events an object remembers.
HISTORY_LENGTH = 24
#: How long the reason of an event may be; the object itself has the whole of the last one.
LONGEST_EVENT_REASON = 255
#: What has events that can be listed, and how these objects are called together.
EVENTFUL = {
    "batch": "batches", "card": "cards", "design": "designs", "function": "functions", "gang": "gangs",
    "host": "hosts", "instance": "instances", "job": "jobs", "pipeline": "pipelines", "quota": "quotas",
    "slot": "slots", "task": "tasks",
}  # fmt: skip
#: The first event of what a request, or the heartbeat of a host, has brought into the pool.
CREATED = "Created"


class Cause(NamedTuple):
    """The request that caused an event or a command."""

    #: The pool's own, as the answer says; "" = none did: the pool decided, or an agent observed it.
    request_id: str = ""
    #: That of the caller, which other services may have been asked under, too; "" = it has named none.
    global_request_id: str = ""


#: The pool decided by itself, or an agent observed it.
NO_CAUSE = Cause()


class HistoryEntry(Message, frozen=True):
    """One event of an object: what happened to it, and its state before and after."""

    at: Moment
    event: str
    before: str
    after: str
    #: Grows by one with every event of the object from 0, its creation; older events that are like a later one are
    #: forgotten first, and leave gaps.
    number: int = 0
    #: Why, for people; "" = the event says it.
    reason: str = ""
    #: Of what caused it: see `Cause`.
    request_id: str = ""
    global_request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvent:
    """An event, and the object that it happened to."""

    #: A key of EVENTFUL.
    kind: str
    #: "" = a host, which has none.
    uuid: str
    name: str
    #: "" = it belongs to none.
    project_id: str
    #: Where the object is now; "" = it is at none, or at several.
    host: str
    entry: Flat[HistoryEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvents:
    """A page of events, newest first."""

    events: tuple[PoolEvent, ...]
    #: Marker of the next page; "" = there is none.
    next: str


def last_event_at(thing: Any) -> float:
    """Return when the newest event of an object was; 0 = it has none."""
    return max((entry.at for entry in thing.history), default=0.0)


def created(now_s: float, state: str) -> tuple[HistoryEntry, ...]:
    """Return the history of an object that is new."""
    return (HistoryEntry(now_s, CREATED, "", state),)


def with_event(
    history: tuple[HistoryEntry, ...], at: float, event: str, before: str, after: str, reason: str = ""
) -> tuple[HistoryEntry, ...]:
    """Return a history with one more event.

    Of one that is too long the oldest event is forgotten that is like a later one, so that what happens again and again
    (jobs of a batch that end, jobs that a slot computes) does not displace what happened once.
    """
    number = history[-1].number + 1 if history else 1
    longer = (*history, HistoryEntry(at, event, before, after, number, reason[:LONGEST_EVENT_REASON]))
    return longer if len(longer) <= HISTORY_LENGTH else _shortened(longer)


def _shortened(history: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    kinds = [(entry.event, entry.before, entry.after) for entry in history]
    repeated = (index for index, kind in enumerate(kinds) if kind in kinds[index + 1 :])
    index = next(repeated, 0)
    return history[:index] + history[index + 1 :]


def caused_by(cause: Cause, thing: T, before: object = None) -> T:
    """Return an object whose events since `before` (None: all) carry the ids of the request that caused them."""
    history: tuple[HistoryEntry, ...] = getattr(thing, "history", ())
    known: tuple[HistoryEntry, ...] = getattr(before, "history", ())
    last = known[-1].number if known else -1
    if not history or history[-1].number == last:
        return thing
    marked = tuple(changed(entry, **cause._asdict()) if entry.number > last else entry for entry in history)
    return changed(thing, history=marked)
