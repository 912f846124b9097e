"""What would become of work if it was created now: the answers of dry runs."""

from dataclasses import dataclass

from fpga_pool.model.fields import Moment, Number
from fpga_pool.model.flavor import Tier, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """Where and when a job would compute; "" and None where it would wait for a place."""

    #: Position in its batch, task or pipeline.
    index: int
    name: str
    function: str
    requester: str
    input_bytes: int
    host: str = ""
    slot: str = ""
    #: Relative to the `dispatched_at` of the plan.
    start_s: Number | None = None
    end_s: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPart(PlannedJob):
    """A share of a task, or a subtask of a pipeline."""

    #: Its slot would load the function first.
    loads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """What would become of a batch if it was created now: fields are those of `Batch`, None where none would be."""

    policy: str
    jobs: int
    input_bytes: int
    dispatched_at: Moment | None
    planned_makespan_s: Number | None
    lower_bound_s: Number | None
    planned_completion_s: Number | None
    completion_bound_s: Number | None
    #: When its last job would end, UTC seconds.
    ends_at: Moment | None
    #: By how much that would be after its deadline; None = it would not, or there is none.
    late_s: Number | None
    #: As in `BatchDetail`, of the jobs that would wait.
    pending_reason: str
    expected_at: Moment | None
    #: By index.
    job_list: tuple[PlannedJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """What would become of a task: where and when it would compute, or why it would wait and until when."""

    function: str
    topology: Topology
    shares: int
    input_bytes: int
    #: Waiting tasks of its shard, all of which have come before it.
    ahead: int
    #: On how many slots it would compute, None = it would wait; and how many of these load its function first.
    slots: int | None
    loads: int
    #: When it would get its slots, if that is now; the times of its shares are relative to this.
    dispatched_at: Moment | None
    #: Compute time of its quickest shape that some host has slots for; None = none has.
    lower_bound_s: Number | None
    pending_reason: str
    #: When it would begin to compute, and end; None = unknown.
    expected_at: Moment | None
    ends_at: Moment | None
    slot_list: tuple[str, ...]
    #: By index.
    share_list: tuple[PlannedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProcess:
    """Where a process of a gang would begin."""

    index: int
    host: str
    processor: str
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGang:
    """What would become of a gang: on which processors it would begin, or why it would wait and until when."""

    processes: int
    runtime_s: Number
    #: Gangs of its shard that wait for the foreground, all of which have come before it.
    ahead: int
    #: Where it would begin now; None = it would wait.
    tier: Tier | None
    #: It would begin in the background with the higher priority, for a trial.
    trial: bool
    #: What it takes on dedicated processors, by its own estimate.
    lower_bound_s: Number
    #: Why it would not begin in the foreground now.
    pending_reason: str
    #: When it would begin in the foreground by all estimates, and end; None = unknown.
    expected_at: Moment | None
    ends_at: Moment | None
    process_list: tuple[PlannedProcess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPipeline:
    """What would become of a pipeline: its subtasks one after the other, each when all that it reads is there."""

    subtasks: int
    input_bytes: int
    #: When the first subtasks would get places, if that is now; the times of all are relative to this.
    dispatched_at: Moment | None
    planned_makespan_s: Number | None
    #: Of its longest path, each subtask computed where it is quickest; None = one of them cannot be computed now.
    lower_bound_s: Number | None
    pending_reason: str
    #: When the first one would begin to compute, and the last one end; None = unknown.
    expected_at: Moment | None
    ends_at: Moment | None
    #: By index: each follows its predecessors.
    subtask_list: tuple[PlannedPart, ...]
