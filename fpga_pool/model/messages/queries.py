"""Query parameters of the REST API: each operation names the class of its parameters."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Count, ProjectId, Text, Uuid

Limit1000 = Annotated[int, Meta(ge=1, le=1000, description="1 to 1000")]
Since = Annotated[datetime, Meta(tz=True, description="a date with a time zone, such as 2026-01-31T12:00:00Z")]


class ProjectQuery(Message, frozen=True, kw_only=True):
    """Parameter for the project of an object."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None


class WorkQuery(ProjectQuery, frozen=True, kw_only=True):
    """Parameters of a list of objects of a project: filters that must all match, order and page."""

    #: One or several states.
    state: tuple[str, ...] = ()
    #: Created at this time or later.
    since: Since | None = None
    sort: Annotated[str, Meta(pattern=r"^created_at(:asc|:desc)?\Z", description="created_at with :asc or :desc")] = (
        "created_at:desc"
    )
    limit: Limit1000 = 100
    #: The last object of the previous page; None = the first page.
    marker: Uuid | None = None


class NamedWorkQuery(WorkQuery, frozen=True, kw_only=True):
    """Parameters of a list of designs or gangs."""

    #: One or several names.
    name: tuple[Text, ...] = ()


class BatchQuery(NamedWorkQuery, frozen=True, kw_only=True):
    """Parameters of a list of batches or pipelines; `function` and `host` together must match the same job."""

    #: One or several functions of their jobs, and hosts on which these were planned.
    function: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()


class TaskQuery(NamedWorkQuery, frozen=True, kw_only=True):
    """Parameters of a list of tasks."""

    #: One or several functions.
    function: tuple[Text, ...] = ()


class ProjectJobQuery(WorkQuery, frozen=True, kw_only=True):
    """Parameters of a list of jobs of all batches."""

    #: One or several functions.
    function: tuple[Text, ...] = ()
    #: One or several hosts on which they were planned, and batches to which they belong.
    host: tuple[Text, ...] = ()
    batch_uuid: tuple[Uuid, ...] = ()


class NameQuery(Message, frozen=True, kw_only=True):
    """Order and page of a list sorted by name."""

    sort: Annotated[str, Meta(pattern=r"^name(:asc|:desc)?\Z", description="name:asc or name:desc")] = "name:asc"
    limit: Limit1000 | None = None
    #: Name of the last object of the previous page; None = the first page.
    marker: Text | None = None


class SlotQuery(NameQuery, frozen=True, kw_only=True):
    """Parameters of a list of slots: filters that must all match."""

    #: One or several states, loaded functions, and hosts.
    state: tuple[str, ...] = ()
    function: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()
    #: Their last event was at this time or later.
    since: Since | None = None


class CardQuery(NameQuery, frozen=True, kw_only=True):
    """Parameters of a list of cards: filters that must all match."""

    #: One or several states, boards, and hosts.
    state: tuple[str, ...] = ()
    board: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()
    #: The last event of one of their slots was at this time or later.
    since: Since | None = None


class HostQuery(NameQuery, frozen=True, kw_only=True):
    """Parameters of a list of hosts."""

    alive: bool | None = None
    #: Their last event was at this time or later.
    since: Since | None = None


class ProcessorQuery(NameQuery, frozen=True, kw_only=True):
    """Parameters of a list of processors for gangs."""

    #: One or several hosts.
    host: tuple[Text, ...] = ()


class PartQuery(Message, frozen=True, kw_only=True):
    """Page of a list that is not read from the database page by page."""

    limit: Limit1000 | None = None
    #: The marker in the link to the next page; None = the first page.
    marker: Text | None = None


class CountersQuery(PartQuery, frozen=True, kw_only=True):
    """Parameters of a list of counters: of one host, or (None) of all living hosts."""

    host: Text | None = None
    sort: Annotated[str, Meta(pattern=r"^host(:asc|:desc)?\Z", description="host:asc or host:desc")] = "host:asc"


class ServiceQuery(PartQuery, frozen=True, kw_only=True):
    """Order and page of the list of services, which is sorted by kind and name."""

    sort: Annotated[str, Meta(pattern=r"^kind(:asc|:desc)?\Z", description="kind:asc or kind:desc")] = "kind:asc"


class WorkCountQuery(ServiceQuery, frozen=True, kw_only=True):
    """Parameters of the counts of a project's work, which are sorted by kind and state."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None


class FlowQuery(PartQuery, frozen=True, kw_only=True):
    """Parameters of a list of a project's inputs under way, which is sorted by requester, host and job."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None
    sort: Annotated[str, Meta(pattern=r"^requester(:asc|:desc)?\Z", description="requester:asc or requester:desc")] = (
        "requester:asc"
    )


class EventQuery(Message, frozen=True, kw_only=True):
    """Parameters of a list of events of one object: filters that must all match, order and page."""

    #: One or several names of events.
    event: tuple[Text, ...] = ()
    #: Start (inclusive) and end (exclusive) of the period.
    since: Since | None = None
    until: Since | None = None
    sort: Annotated[str, Meta(pattern=r"^at(:asc|:desc)?\Z", description="at:asc or at:desc")] = "at:desc"
    limit: Limit1000 = 100
    #: Number of the last event of the previous page; None = the first page.
    marker: Count | None = None


class WorkEventQuery(EventQuery, frozen=True, kw_only=True):
    """Parameters of a list of events of one object of a project."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None


class PoolEventQuery(Message, frozen=True, kw_only=True):
    """Parameters of a list of events of all objects, newest first: filters that must all match, and page."""

    #: One or several kinds of objects, names or uuids of objects, hosts where they are, and names of events.
    kind: tuple[Text, ...] = ()
    name: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()
    event: tuple[Text, ...] = ()
    #: Another project than the caller's own, or "all", which includes objects of no project; for admins.
    project_id: ProjectId | None = None
    #: Start (inclusive) and end (exclusive) of the period.
    since: Since | None = None
    until: Since | None = None
    limit: Limit1000 = 100
    #: The marker in the link to the next page; None = the first page.
    marker: Text | None = None


#: How long a caller waits for changes.
Patience = Annotated[float, Meta(ge=0, le=5, description="0 to 5 seconds")]


class JobQuery(ProjectQuery, frozen=True, kw_only=True):
    """Parameters of a list of jobs of a batch: states, changes after a previous answer, and how long to wait."""

    state: tuple[str, ...] = ()
    changed_after: str | None = None
    wait_s: Patience = 0.0
    #: Whether the answer includes the batch.
    batch: bool = False
    sort: Annotated[str, Meta(pattern=r"^index(:asc|:desc)?\Z", description="index:asc or index:desc")] = "index:asc"
    limit: Limit1000 | None = None
    #: Index of the last job of the previous page; None = the first page.
    marker: Count | None = None


class NewBatchQuery(Message, frozen=True, kw_only=True):
    """How long the answer may wait for jobs to get places; it includes these, with tickets for small inputs."""

    wait_s: Patience = 0.0


class LibraryQuery(Message, frozen=True, kw_only=True):
    """Host whose library is inspected; None = for each board, the library of the first host with such a card."""

    host: Text | None = None


class BitstreamQuery(NameQuery, frozen=True, kw_only=True):
    """Parameters of a list of bitstreams: filters that must all match; `host` as in LibraryQuery."""

    host: Text | None = None
    #: One or several functions, boards, and kinds of slots.
    function: tuple[Text, ...] = ()
    board: tuple[Text, ...] = ()
    kind: tuple[Text, ...] = ()


class CalibrationQuery(PartQuery, frozen=True, kw_only=True):
    """Parameters of a list of fitted time models, of one function or (None) of all; sorted by function and board."""

    function: str | None = None
    sort: Annotated[str, Meta(pattern=r"^function(:asc|:desc)?\Z", description="function:asc or function:desc")] = (
        "function:asc"
    )


class UsageQuery(Message, frozen=True, kw_only=True):
    """Parameters of a list of usage: project, period, order and page."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None
    #: Period; the defaults are one day before the end, and now.
    start: Since | None = None
    end: Since | None = None
    #: Sorted by project and function.
    sort: Annotated[
        str, Meta(pattern=r"^project_id(:asc|:desc)?\Z", description="project_id:asc or project_id:desc")
    ] = "project_id:asc"
    limit: Limit1000 = 1000
    #: Project and function of the last row of the previous page, as PROJECT/FUNCTION.
    marker: Text | None = None


class NoQuery(Message, frozen=True, kw_only=True):
    """No parameters."""
