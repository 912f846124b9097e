"""The pool's versioned notifications: which events of which objects are sent, and their payloads.

Notifications are derived from the histories of objects, which record every change of state; they represent an object
as the REST API does.  A payload has `version`, `at`, `reason`, `request_id`, `global_request_id`, and the object under
its noun.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from fpga_pool.model.lifecycle.slot import HostLost, LeaseBroken, LeaseReleased, LeaseRestored
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.model.objects.gangs import ENDED_GANGS, Gang
from fpga_pool.model.objects.history import CREATED, HistoryEntry
from fpga_pool.model.objects.pool import ENDED_BATCHES, PIPELINE_POLICY, Batch, Host, Lease, Slot, SlotState
from fpga_pool.model.objects.tasks import ENDED_TASKS, TASK_POLICY, Task
from fpga_pool.model.rest import date, show

#: The event in the history of a host that reports again.
HOST_RETURNED = "HostReturned"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of notification.

    Additional fields of the object raise the minor version; any other change raises the major version.
    """

    #: NOUN.EVENT; the noun is also the key of the object in the payload.
    event_type: str
    of: type
    fields: tuple[str, ...]
    #: Returns whether an event of an object is of this kind.
    is_sent: Callable[[Any, HistoryEntry], bool]
    help: str
    #: Whether an operator should check the object.
    warns: bool = False
    version: str = "1.0"

    @property
    def noun(self) -> str:
        """Noun for its objects."""
        return self.event_type.partition(".")[0]

    @property
    def priority(self) -> str:
        """Priority in oslo.messaging."""
        return "warn" if self.warns else "info"


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification as it is sent."""

    event_type: str
    priority: str
    payload: dict[str, Any]


def notification(kind: Kind, thing: Any, entry: HistoryEntry) -> Notification:
    """Return the notification of an event of an object."""
    shown = msgspec.to_builtins(show(thing))
    payload = {
        "version": kind.version,
        "at": date(entry.at),
        "reason": entry.reason,
        "request_id": entry.request_id,
        "global_request_id": entry.global_request_id,
        kind.noun: {name: shown[name] for name in kind.fields},
    }
    return Notification(event_type=kind.event_type, priority=kind.priority, payload=payload)


def notifications(cls: type, events: Iterable[tuple[Any, HistoryEntry]]) -> list[Notification]:
    """Return the notifications for events of objects of a class."""
    kinds = [kind for kind in KINDS if kind.of is cls]
    return [notification(kind, thing, entry) for thing, entry in events for kind in kinds if kind.is_sent(thing, entry)]


def _named(event: str) -> Callable[[Any, HistoryEntry], bool]:
    return lambda _, entry: entry.event == event


def _of_instance(event: str) -> Callable[[Lease, HistoryEntry], bool]:
    return lambda lease, entry: lease.of_instance and entry.event == event


def _reached(states: Collection[str]) -> Callable[[Any, HistoryEntry], bool]:
    return lambda _, entry: entry.after in states and entry.before not in states


def _batch_ended(*, pipeline: bool) -> Callable[[Batch, HistoryEntry], bool]:
    ended = _reached(ENDED_BATCHES)
    return lambda batch, entry: (
        batch.policy != TASK_POLICY and (batch.policy == PIPELINE_POLICY) is pipeline and ended(batch, entry)
    )


_SLOT = ("uuid", "name", "host", "card", "board", "kind", "state", "function", "drain_requested", "reason")
_HOST = ("name", "alive", "heard_at", "boot")
_WORK = ("uuid", "project_id", "user_id", "name", "state", "created_at", "ended_at")
_COUNTS = ("jobs", "jobs_completed", "jobs_failed", "jobs_cancelled")
_BATCH = (*_WORK, "policy", "priority", "dispatched_at", *_COUNTS, "planned_makespan_s", "lower_bound_s")
_TASK = (*_WORK, "function", "slots", "shares", "started_at", "attempt", "reason")
_DESIGN = ("uuid", "project_id", "user_id", "name", "function", "state", "public", "signer", "sha256", "reason")
_GANG = (*_WORK, "processes", "started_at", "attempt", "swaps", "migrations", "kills", "cpu_s", "reason")
_LEASE = ("uuid", "slot", "holder", "project_id", "function", "state", "broken", "granted_at", "released_at")

KINDS = (
    Kind(
        "slot.faulted",
        Slot,
        _SLOT,
        _reached({SlotState.FAULTED}),
        "A slot is out of service: its card has failed or is gone, or its host is lost.",
        warns=True,
    ),
    Kind(
        "slot.recovered",
        Slot,
        _SLOT,
        lambda _, entry: entry.before == SlotState.FAULTED != entry.after,
        "A slot that was out of service can be loaded again; it takes work unless it is to be drained.",
    ),
    Kind(
        "host.lost",
        Host,
        _HOST,
        _named(HostLost.__name__),
        "The agent of a host has sent no heartbeat for ``host_timeout_s``, or its key was revoked.",
        warns=True,
    ),
    Kind("host.returned", Host, _HOST, _named(HOST_RETURNED), "The agent of a lost host reports again."),
    Kind(
        "batch.ended",
        Batch,
        _BATCH,
        _batch_ended(pipeline=False),
        "A batch has ended; ``state`` is its outcome: COMPLETED, FAILED or CANCELLED.",
    ),
    Kind(
        "pipeline.ended",
        Batch,
        (*_WORK, *_COUNTS),
        _batch_ended(pipeline=True),
        "A pipeline has ended; its jobs are its subtasks.",
    ),
    Kind("task.ended", Task, _TASK, _reached(ENDED_TASKS), "A task has ended."),
    Kind("design.submitted", Design, _DESIGN, _named(CREATED), "A tenant has submitted a design."),
    Kind(
        "design.decided",
        Design,
        _DESIGN,
        lambda _, entry: entry.event != CREATED,
        "A design was approved, rejected or revoked (``state``), or made public or private.",
    ),
    Kind("gang.ended", Gang, _GANG, _reached(ENDED_GANGS), "A gang has ended."),
    Kind("lease.begun", Lease, _LEASE, _of_instance(CREATED), "An instance, ``holder``, holds a slot."),
    Kind(
        "lease.broken",
        Lease,
        _LEASE,
        _of_instance(LeaseBroken.__name__),
        "An instance cannot use a slot that it holds: the slot has failed, or its function is not loaded.",
        warns=True,
    ),
    Kind(
        "lease.restored",
        Lease,
        _LEASE,
        _of_instance(LeaseRestored.__name__),
        "The function is loaded again in a slot whose lease was broken.",
    ),
    Kind(
        "lease.ended", Lease, _LEASE, _of_instance(LeaseReleased.__name__), "An instance does not hold a slot any more."
    ),
)

#: Classes of objects that have notifications.
NOTIFIED = tuple(dict.fromkeys(kind.of for kind in KINDS))
