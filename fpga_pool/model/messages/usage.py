"""What projects have used: the question and the answer."""

from dataclasses import dataclass

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Moment, Number, ReportedMoment


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a project has used of one function from `begin_at` up to `end_at`.

    Jobs have computed to their end; `function` is "" where an instance loads its slot itself.
    """

    project_id: str
    function: str
    begin_at: Moment
    end_at: Moment
    jobs: int
    #: How long they computed on slots, and on CPU workers.
    slot_s: Number
    cpu_s: Number
    #: The same in seconds of standard vCPUs, by the function's speedup; None = it is not in the catalogue any more.
    vcpu_s: Number | None
    #: How long instances held slots, whatever they did there.
    instance_slot_s: Number
    #: How often it was loaded into a slot for the project's jobs and instances.
    loads: int
    input_bytes: int
    result_bytes: int


class UsagePage(Message, frozen=True, kw_only=True):
    """Which usage is wanted: by project and function."""

    #: None = of all projects.
    project_id: str | None = None
    #: None = the day before the end, and now.
    begin_at: ReportedMoment | None = None
    end_at: ReportedMoment | None = None
    #: Project and function of the last row of the page before; None = the first page.
    after: tuple[str, str] | None = None
    limit: int = 1000
    descending: bool = False
