"""Usage of projects: the request and the answer."""

from dataclasses import dataclass

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Moment, Number, ReportedMoment


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of one function by a project from `begin_at` up to `end_at`.

    Only jobs that have completed their computation count; `function` is "" for instances that load their slots
    themselves.
    """

    project_id: str
    function: str
    begin_at: Moment
    end_at: Moment
    jobs: int
    #: Computation time of the jobs on slots, and on CPU workers.
    slot_s: Number
    cpu_s: Number
    #: Their sum in seconds of standard vCPUs, by the function's speedup; None = it is no longer in the catalogue.
    vcpu_s: Number | None
    #: Time during which instances held slots, whether they used them or not.
    instance_slot_s: Number
    #: Number of loads into slots for the project's jobs and instances.
    loads: int
    input_bytes: int
    result_bytes: int


class UsagePage(Message, frozen=True, kw_only=True):
    """Project, period and page of a list of usage, which is sorted by project and function."""

    #: None = all projects.
    project_id: str | None = None
    #: Period; None = one day before the end, and now.
    begin_at: ReportedMoment | None = None
    end_at: ReportedMoment | None = None
    #: Project and function of the last row of the previous page; None = the first page.
    after: tuple[str, str] | None = None
    limit: int = 1000
    descending: bool = False
