"""The history of an object: its events, oldest first, which are stored and removed with the object.

The transaction that changes the object stores the event in the object's row, so no further statement is needed.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Flat, Moment
from fpga_pool.model.values import changed

T = TypeVar("T")

#: Maximum number of events in a history.
HISTORY_LENGTH = 24
#: Maximum length of the reason for an event; the object itself has the full text of the last one.
LONGEST_EVENT_REASON = 255
#: Kinds of objects whose events can be listed, with their plurals.
EVENTFUL = {
    "batch": "batches", "card": "cards", "design": "designs", "function": "functions", "gang": "gangs",
    "host": "hosts", "instance": "instances", "job": "jobs", "pipeline": "pipelines", "quota": "quotas",
    "slot": "slots", "task": "tasks",
}  # fmt: skip
#: The first event of an object that was created by a request or by a host's heartbeat.
CREATED = "Created"


class Cause(NamedTuple):
    """The request that caused an event or a command."""

    #: The pool's id of the request, as returned with the answer; "" = not caused by a request.
    request_id: str = ""
    #: The caller's id, which it may have used in requests to other services, too; "" = none was given.
    global_request_id: str = ""


#: Not caused by a request, but by a decision of the pool or an observation of an agent.
NO_CAUSE = Cause()


class HistoryEntry(Message, frozen=True):
    """One event of an object: what happened to it, and its state before and after."""

    at: Moment
    event: str
    before: str
    after: str
    #: Increases by one with every event of the object, from 0 for its creation.  There are gaps after the removal of
    #: events: those that resemble a later one are removed first.
    number: int = 0
    #: Human-readable reason; "" = evident from the event.
    reason: str = ""
    #: Ids of the request that caused it, see `Cause`.
    request_id: str = ""
    global_request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvent:
    """An event with its object."""

    #: A key of EVENTFUL.
    kind: str
    #: "" for a host, which has no uuid.
    uuid: str
    name: str
    #: "" = the object belongs to no project.
    project_id: str
    #: Current host of the object; "" = none, or several.
    host: str
    entry: Flat[HistoryEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvents:
    """A page of events, newest first."""

    events: tuple[PoolEvent, ...]
    #: Marker of the next page; "" = this is the last page.
    next: str


def last_event_at(thing: Any) -> float:
    """Return the time of the newest event of an object; 0 = it has none."""
    return max((entry.at for entry in thing.history), default=0.0)


def created(now_s: float, state: str) -> tuple[HistoryEntry, ...]:
    """Return the history of a new object."""
    return (HistoryEntry(now_s, CREATED, "", state),)


def with_event(
    history: tuple[HistoryEntry, ...], at: float, event: str, before: str, after: str, reason: str = ""
) -> tuple[HistoryEntry, ...]:
    """Return a history with one more event.

    If the history becomes too long, the oldest event that resembles a later one is removed, so that frequent events
    (ends of a batch's jobs, jobs that a slot computes) do not displace rare ones.
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
    """Return an object with the ids of `cause` set in its events since `before` (None = in all events)."""
    history: tuple[HistoryEntry, ...] = getattr(thing, "history", ())
    known: tuple[HistoryEntry, ...] = getattr(before, "history", ())
    last = known[-1].number if known else -1
    if not history or history[-1].number == last:
        return thing
    marked = tuple(changed(entry, **cause._asdict()) if entry.number > last else entry for entry in history)
    return changed(thing, history=marked)
