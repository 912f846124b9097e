"""Predictions for work as if it were created now: the answers to dry runs."""

from dataclasses import dataclass

from fpga_pool.model.fields import Moment, Number
from fpga_pool.model.flavor import Tier, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """Predicted place and times of a job; "" and None if it would wait for a place."""

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

    #: Whether its slot would have to load the function first.
    loads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """Prediction for a batch; its fields are those of `Batch`, None if they would not be set."""

    policy: str
    jobs: int
    input_bytes: int
    dispatched_at: Moment | None
    planned_makespan_s: Number | None
    lower_bound_s: Number | None
    planned_completion_s: Number | None
    completion_bound_s: Number | None
    #: Predicted end of its last job, UTC seconds.
    ends_at: Moment | None
    #: How long after its deadline it would end; None = not late, or no deadline.
    late_s: Number | None
    #: As in `BatchDetail`, for the jobs that would wait.
    pending_reason: str
    expected_at: Moment | None
    #: Ordered by index.
    job_list: tuple[PlannedJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """Prediction for a task: where and when it would compute, or why and until when it would wait."""

    function: str
    topology: Topology
    shares: int
    input_bytes: int
    #: Number of tasks of its shard that wait already.
    ahead: int
    #: Number of slots on which it would compute (None = it would wait), and of those to be loaded first.
    slots: int | None
    loads: int
    #: When it would get its slots, if immediately; the times of its shares are relative to this.
    dispatched_at: Moment | None
    #: Compute time of its fastest shape for which some host has slots; None = no host has.
    lower_bound_s: Number | None
    pending_reason: str
    #: Predicted start and end of the computation; None = unknown.
    expected_at: Moment | None
    ends_at: Moment | None
    slot_list: tuple[str, ...]
    #: Ordered by index.
    share_list: tuple[PlannedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProcess:
    """Predicted first place of a process of a gang."""

    index: int
    host: str
    processor: str
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGang:
    """Prediction for a gang: the processors on which it would begin, or why and until when it would wait."""

    processes: int
    runtime_s: Number
    #: Number of gangs of its shard that wait for the foreground already.
    ahead: int
    #: Tier in which it would begin now; None = it would wait.
    tier: Tier | None
    #: Whether it would begin with a trial: in the background, with the higher priority.
    trial: bool
    #: Run time on dedicated processors, by its own estimate.
    lower_bound_s: Number
    #: Why it would not begin in the foreground now.
    pending_reason: str
    #: Predicted start in the foreground and end, according to the estimates of all gangs; None = unknown.
    expected_at: Moment | None
    ends_at: Moment | None
    process_list: tuple[PlannedProcess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPipeline:
    """Prediction for a pipeline, each of whose subtasks begins when all its inputs are available."""

    subtasks: int
    input_bytes: int
    #: When the first subtasks would get places, if immediately; the times of all subtasks are relative to this.
    dispatched_at: Moment | None
    planned_makespan_s: Number | None
    #: Length of its longest path, if each subtask is computed where it is fastest; None = one cannot be computed now.
    lower_bound_s: Number | None
    pending_reason: str
    #: Predicted start of the first subtask and end of the last one; None = unknown.
    expected_at: Moment | None
    ends_at: Moment | None
    #: Ordered by index; each subtask follows its predecessors.
    subtask_list: tuple[PlannedPart, ...]
