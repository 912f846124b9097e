"""Output of the plans of dry runs, that is, of work that is not created."""

from collections.abc import Sequence

from fpga_pool.cli.client.batch import as_late
from fpga_pool.cli.client.columns import Columns, One, Shown, Table, as_lines, join, single, table
from fpga_pool.model.codec import to_plain
from fpga_pool.model.messages.plans import (
    PlannedBatch,
    PlannedGang,
    PlannedJob,
    PlannedPart,
    PlannedPipeline,
    PlannedProcess,
    PlannedTask,
)

AnyPlan = PlannedBatch | PlannedGang | PlannedPipeline | PlannedTask


def outlook(plan: AnyPlan) -> One:
    """Return a plan as one object."""
    return single(plan, _FIELDS[type(plan)])


def part_table(plan: AnyPlan) -> Table:
    """Return the parts of a plan as a table, for output formats with rows."""
    parts, columns = _PARTS[type(plan)]
    return table(getattr(plan, parts), columns)


def _as_jobs(jobs: Sequence[PlannedJob]) -> Shown:
    return as_lines(to_plain(jobs), map(_line, jobs))


def _line(job: PlannedJob) -> str:
    if job.start_s is None or job.end_s is None:
        return f"{job.index}  {job.name}  waits"
    loads = "loads" if isinstance(job, PlannedPart) and job.loads else ""
    return join(str(job.index), job.name, job.slot, f"{job.start_s:.3f} to {job.end_s:.3f} s", loads)


def _as_processes(processes: Sequence[PlannedProcess]) -> Shown:
    return as_lines(to_plain(processes), (join(str(one.index), one.processor, one.tier) for one in processes))


_JOBS: Columns = ("index", "name", "function", "host", "slot", "start_s", "end_s")
_EXPECTED = ("pending_reason", "expected_at", "ends_at")
_FIELDS: dict[type, Columns] = {
    PlannedBatch: (
        *("policy", "jobs", "input_bytes", "planned_makespan_s", "lower_bound_s", "planned_completion_s"),
        *("completion_bound_s", "ends_at"),
        ("late_s", lambda plan: as_late(plan.late_s)),
        *("pending_reason", "expected_at"),
        ("job_list", lambda plan: _as_jobs(plan.job_list)),
    ),
    PlannedGang: (
        *("processes", "runtime_s", "ahead", "tier", "trial", "lower_bound_s", *_EXPECTED),
        ("process_list", lambda plan: _as_processes(plan.process_list)),
    ),
    PlannedPipeline: (
        *("subtasks", "input_bytes", "planned_makespan_s", "lower_bound_s", *_EXPECTED),
        ("subtask_list", lambda plan: _as_jobs(plan.subtask_list)),
    ),
    PlannedTask: (
        *("function", "topology", "shares", "input_bytes", "ahead", "slots", "loads", "lower_bound_s", *_EXPECTED),
        ("slot_list", lambda plan: as_lines(plan.slot_list, plan.slot_list)),
        ("share_list", lambda plan: _as_jobs(plan.share_list)),
    ),
}
#: The field with the parts of a plan, and the columns shown for each part.
_PARTS: dict[type, tuple[str, Columns]] = {
    PlannedBatch: ("job_list", _JOBS),
    PlannedGang: ("process_list", ("index", "host", "processor", "tier")),
    PlannedPipeline: ("subtask_list", (*_JOBS, "loads")),
    PlannedTask: ("share_list", (*_JOBS, "loads")),
}
