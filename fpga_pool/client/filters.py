"""Filters of the API's lists, and options with which batches are created, changed and run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from fpga_pool.model.rest import date
from fpga_pool.transfer.frames import SMALL_BYTES


class BatchOptions(TypedDict, total=False):
    """Options of a new batch."""

    policy: str
    #: Its jobs are not placed until it is released.
    held: bool
    priority: int
    #: UTC seconds.
    deadline_at: float | None
    #: Uuids of batches of the project that must be complete before it is planned.
    after: Sequence[str]


def as_body(options: BatchOptions) -> dict[str, object]:
    """Return options in the form of the API's request bodies."""
    return {**options, **({"deadline_at": date(options["deadline_at"])} if "deadline_at" in options else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Parameters of a run."""

    max_streams: int = 64
    #: Inputs and results up to this size in bytes share a connection to their host; larger ones use a separate one.
    small_bytes: int = SMALL_BYTES
    #: Interval between two polls of the batch: it grows from the first to the second while nothing changes.
    fast_poll_s: float = 0.1
    slow_poll_s: float = 1.0
    #: How long before its planned start a stream is opened.
    open_ahead_s: float = 1.0
    #: Pause before a broken stream is opened again: it doubles from the first to the longest.
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    #: For how long the API may be unavailable.
    patience_s: float = 120.0
    #: Time limit of the whole batch.
    timeout_s: float = 86_400.0


class BatchChanges(TypedDict, total=False):
    """Changes of an existing batch."""

    held: bool
    priority: int


class NameFilters(TypedDict, total=False):
    """Parameters of every list; None = the default of the API."""

    #: Field and direction, such as "created_at:asc".
    sort: str | None
    #: Uuid, or name, of the object after which the list begins.
    marker: str | None


class EventFilters(NameFilters, total=False):
    """Which events of an object are listed."""

    event: Sequence[str]
    #: Only events at `since` or later, and before `until`, in UTC seconds.
    since: float | None
    until: float | None


class PoolEventFilters(TypedDict, total=False):
    """Which events of all objects are listed."""

    #: Kinds of objects, their names or uuids, hosts where they are, and names of events.
    kind: Sequence[str]
    name: Sequence[str]
    host: Sequence[str]
    event: Sequence[str]
    #: Only events at `since` or later, and before `until`, in UTC seconds.
    since: float | None
    until: float | None
    #: Another project, or "all"; for admins.
    project_id: str | None
    #: The marker in a link to the next page.
    marker: str | None


class WorkFilters(NameFilters, total=False):
    """Which objects of projects are listed."""

    state: Sequence[str]
    #: Only objects created at this time or later, in UTC seconds.
    since: float | None
    #: Another project, or "all"; for admins.
    project_id: str | None


class NamedWorkFilters(WorkFilters, total=False):
    """Which designs or gangs are listed."""

    name: Sequence[str]


class BatchFilters(NamedWorkFilters, total=False):
    """Which batches or pipelines are listed; with function and host, those with a job of the function on the host."""

    #: Functions of their jobs, and hosts on which these jobs were planned.
    function: Sequence[str]
    host: Sequence[str]


class TaskFilters(NamedWorkFilters, total=False):
    """Which tasks are listed."""

    function: Sequence[str]


class JobFilters(WorkFilters, total=False):
    """Which jobs are listed."""

    function: Sequence[str]
    host: Sequence[str]
    batch_uuid: Sequence[str]


class SlotFilters(NameFilters, total=False):
    """Which slots are listed."""

    state: Sequence[str]
    function: Sequence[str]
    host: Sequence[str]
    #: Only slots whose last event was at this time or later, in UTC seconds.
    since: float | None


class CardFilters(NameFilters, total=False):
    """Which cards are listed."""

    state: Sequence[str]
    board: Sequence[str]
    host: Sequence[str]
    #: Only cards whose last event was at this time or later, in UTC seconds.
    since: float | None


class ProcessorFilters(NameFilters, total=False):
    """Which processors of gangs are listed."""

    host: Sequence[str]


class ProjectFilters(NameFilters, total=False):
    """The project whose work is counted, or whose inputs are listed."""

    #: Another project, or "all"; for admins.
    project_id: str | None


class UsageFilters(ProjectFilters, total=False):
    """The project and period of a usage."""

    #: UTC seconds; by default one day before the end, and now.
    start: float | None
    end: float | None


class BitstreamFilters(NameFilters, total=False):
    """Which bitstreams are listed."""

    function: Sequence[str]
    board: Sequence[str]
    kind: Sequence[str]


class HostFilters(NameFilters, total=False):
    """Which hosts are listed."""

    alive: bool | None
    #: Only hosts whose last event was at this time or later, in UTC seconds.
    since: float | None
