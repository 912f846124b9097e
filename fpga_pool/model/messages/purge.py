"""What operators remove from the database: the request and the answer."""

from dataclasses import dataclass

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Moment, ProjectId


class PurgeRequest(Message, frozen=True, kw_only=True):
    """An operator's wish to remove what ended before a point in time; what is in use stays."""

    ended_before: Moment
    #: None = of all projects, and hosts and offers of keys, which are of none.
    project_id: ProjectId | None = None
    #: Count only, remove nothing.
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """What was removed, or would be."""

    #: False = this took long, and some is left: the request is to be repeated.
    complete: bool
    batches: int
    jobs: int
    tasks: int
    gangs: int
    leases: int
    #: Of functions into slots.
    loads: int
    #: Those that were silent and had no slots.
    hosts: int
    #: Of keys that were not accepted.
    offers: int
