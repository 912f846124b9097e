"""Query parameters of the REST API: each operation names the class of its own."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Count, ProjectId, Text, Uuid

Limit1000 = Annotated[int, Meta(ge=1, le=1000, description="1 to 1000")]
Since = Annotated[datetime, Meta(tz=True, description="a date with a time zone, such as 2026-01-31T12:00:00Z")]


class ProjectQuery(Message, frozen=True, kw_only=True):
    """Of which project an object is."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None


class WorkQuery(ProjectQuery, frozen=True, kw_only=True):
    """Which objects of a project are wanted: those that match all parameters, a page at a time."""

    #: One or several states.
    state: tuple[str, ...] = ()
    #: Created then or later.
    since: Since | None = None
    sort: Annotated[str, Meta(pattern=r"^created_at(:asc|:desc)?\Z", description="created_at with :asc or :desc")] = (
        "created_at:desc"
    )
    limit: Limit1000 = 100
    #: The last object of the page before; None = the first page.
    marker: Uuid | None = None


class NamedWorkQuery(WorkQuery, frozen=True, kw_only=True):
    """Which designs or gangs are wanted."""

    #: One or several names.
    name: tuple[Text, ...] = ()


class BatchQuery(NamedWorkQuery, frozen=True, kw_only=True):
    """Which batches or pipelines are wanted: with both parameters those that have a job of the function on the host."""

    #: One or several functions of their jobs, and hosts on which these were planned.
    function: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()


class TaskQuery(NamedWorkQuery, frozen=True, kw_only=True):
    """Which tasks are wanted."""

    #: One or several functions.
    function: tuple[Text, ...] = ()


class ProjectJobQuery(WorkQuery, frozen=True, kw_only=True):
    """Which jobs of all batches are wanted."""

    #: One or several functions.
    function: tuple[Text, ...] = ()
    #: One or several hosts on which they were planned, and batches that they are of.
    host: tuple[Text, ...] = ()
    batch_uuid: tuple[Uuid, ...] = ()


class NameQuery(Message, frozen=True, kw_only=True):
    """Which part of a list by name is wanted."""

    sort: Annotated[str, Meta(pattern=r"^name(:asc|:desc)?\Z", description="name:asc or name:desc")] = "name:asc"
    limit: Limit1000 | None = None
    #: Name of the last object of the page before; None = the first page.
    marker: Text | None = None


class SlotQuery(NameQuery, frozen=True, kw_only=True):
    """Which slots are wanted: those that match all parameters."""

    #: One or several states, functions that are loaded, and hosts.
    state: tuple[str, ...] = ()
    function: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()
    #: Their last event was then or later.
    since: Since | None = None


class CardQuery(NameQuery, frozen=True, kw_only=True):
    """Which cards are wanted: those that match all parameters."""

    #: One or several states, boards, and hosts.
    state: tuple[str, ...] = ()
    board: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()
    #: The last event of one of their slots was then or later.
    since: Since | None = None


class HostQuery(NameQuery, frozen=True, kw_only=True):
    """Which hosts are wanted."""

    alive: bool | None = None
    #: Their last event was then or later.
    since: Since | None = None


class ProcessorQuery(NameQuery, frozen=True, kw_only=True):
    """Which processors of gangs are wanted."""

    #: One or several hosts.
    host: tuple[Text, ...] = ()


class PartQuery(Message, frozen=True, kw_only=True):
    """Which part of a list that has no pages in the database is wanted."""

    limit: Limit1000 | None = None
    #: That of the link to the next page; None = the first page.
    marker: Text | None = None


class CountersQuery(PartQuery, frozen=True, kw_only=True):
    """Whose counters are wanted; None = those of all hosts that live."""

    host: Text | None = None
    sort: Annotated[str, Meta(pattern=r"^host(:asc|:desc)?\Z", description="host:asc or host:desc")] = "host:asc"


class ServiceQuery(PartQuery, frozen=True, kw_only=True):
    """Which part of the list of services is wanted; by kind and name."""

    sort: Annotated[str, Meta(pattern=r"^kind(:asc|:desc)?\Z", description="kind:asc or kind:desc")] = "kind:asc"


class WorkCountQuery(ServiceQuery, frozen=True, kw_only=True):
    """Of which project the work is counted; by kind and state."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None


class FlowQuery(PartQuery, frozen=True, kw_only=True):
    """Of which project the inputs under way are wanted; by requester, host and job."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None
    sort: Annotated[str, Meta(pattern=r"^requester(:asc|:desc)?\Z", description="requester:asc or requester:desc")] = (
        "requester:asc"
    )


class EventQuery(Message, frozen=True, kw_only=True):
    """Which part of the events of an object is wanted: those that match all parameters."""

    #: One or several names of events.
    event: tuple[Text, ...] = ()
    #: At that time or later; before that time.
    since: Since | None = None
    until: Since | None = None
    sort: Annotated[str, Meta(pattern=r"^at(:asc|:desc)?\Z", description="at:asc or at:desc")] = "at:desc"
    limit: Limit1000 = 100
    #: Number of the last event of the page before; None = the first page.
    marker: Count | None = None


class WorkEventQuery(EventQuery, frozen=True, kw_only=True):
    """Which part of the events of an object of a project is wanted."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None


class PoolEventQuery(Message, frozen=True, kw_only=True):
    """Which events of all objects are wanted: those that match all parameters, newest first, a page at a time."""

    #: One or several kinds of objects, names or uuids of these, hosts where they are, and names of events.
    kind: tuple[Text, ...] = ()
    name: tuple[Text, ...] = ()
    host: tuple[Text, ...] = ()
    event: tuple[Text, ...] = ()
    #: Another project than the caller's own, or "all", with what belongs to no project; for admins.
    project_id: ProjectId | None = None
    #: At that time or later; before that time.
    since: Since | None = None
    until: Since | None = None
    limit: Limit1000 = 100
    #: That of the link to the next page; None = the first page.
    marker: Text | None = None


#: For how long a caller waits for something new.
Patience = Annotated[float, Meta(ge=0, le=5, description="0 to 5 seconds")]


class JobQuery(ProjectQuery, frozen=True, kw_only=True):
    """Which jobs of a batch are wanted: of some states, of those changed after what was seen; and how long to wait."""

    state: tuple[str, ...] = ()
    changed_after: str | None = None
    wait_s: Patience = 0.0
    #: Whether the batch itself is wanted, too.
    batch: bool = False
    sort: Annotated[str, Meta(pattern=r"^index(:asc|:desc)?\Z", description="index:asc or index:desc")] = "index:asc"
    limit: Limit1000 | None = None
    #: Index of the last job of the page before; None = the first page.
    marker: Count | None = None


class NewBatchQuery(Message, frozen=True, kw_only=True):
    """For how long the answer may wait until jobs have places; they are in it then, with tickets for small inputs."""

    wait_s: Patience = 0.0


class LibraryQuery(Message, frozen=True, kw_only=True):
    """In which host's library it is looked; None = for each board, in that of the first with such a card."""

    host: Text | None = None


class BitstreamQuery(NameQuery, frozen=True, kw_only=True):
    """Which bitstreams are wanted: those that match all parameters; `host` as in LibraryQuery."""

    host: Text | None = None
    #: One or several functions, boards, and kinds of slots.
    function: tuple[Text, ...] = ()
    board: tuple[Text, ...] = ()
    kind: tuple[Text, ...] = ()


class CalibrationQuery(PartQuery, frozen=True, kw_only=True):
    """Of which function the fit is wanted; None = of all; by function and board."""

    function: str | None = None
    sort: Annotated[str, Meta(pattern=r"^function(:asc|:desc)?\Z", description="function:asc or function:desc")] = (
        "function:asc"
    )


class UsageQuery(Message, frozen=True, kw_only=True):
    """Of which project and period the usage is wanted, a page at a time."""

    #: Another project than the caller's own, or "all"; for admins.
    project_id: ProjectId | None = None
    #: The day before the end, and now, by default.
    start: Since | None = None
    end: Since | None = None
    #: By project and function.
    sort: Annotated[
        str, Meta(pattern=r"^project_id(:asc|:desc)?\Z", description="project_id:asc or project_id:desc")
    ] = "project_id:asc"
    limit: Limit1000 = 1000
    #: Project and function of the last row of the page before, as PROJECT/FUNCTION.
    marker: Text | None = None


class NoQuery(Message, frozen=True, kw_only=True):
    """No parameters."""
