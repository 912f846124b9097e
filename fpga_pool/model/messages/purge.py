"""Removal of old records from the database by operators: the request and the answer."""

from dataclasses import dataclass

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Moment, ProjectId


class PurgeRequest(Message, frozen=True, kw_only=True):
    """An operator's request to remove everything that ended before a point in time and is not in use."""

    ended_before: Moment
    #: None = all projects, and also hosts and offers of keys, which belong to no project.
    project_id: ProjectId | None = None
    #: Only count the records, and remove nothing.
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Numbers of records that were removed, or would be."""

    #: False = the time limit was reached, and the request has to be repeated for the rest.
    complete: bool
    batches: int
    jobs: int
    tasks: int
    gangs: int
    leases: int
    #: Loads of functions into slots.
    loads: int
    #: Lost hosts without slots.
    hosts: int
    #: Offers of keys that were not accepted.
    offers: int
