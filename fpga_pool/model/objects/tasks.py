"""Tasks (lattice paper) as frozen values: one function on several linked slots at once.

The shares of a task are the jobs of a batch that has the task's uuid; so they send their inputs, compute and give their
results as all jobs do.  A rigid task has a slot for each share.  A malleable one has several shapes: on fewer slots
than it has shares, a slot computes several of them one after the other.  As in `model.objects.pool`, points in time are
UTC seconds, and a task has a `generation` and a `history`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Detail, Internal, Moment, Seconds
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import DEFAULT_SHARD

#: No task is wider: sets of slots are searched as the bits of one integer.
MOST_SLOTS = 62
#: What stands for the policy in the batch of a task: it is neither planned nor online.
TASK_POLICY = "task"


class TaskState(StrEnum):
    """Where a task is in its life."""

    #: Waits, and has no slots.
    QUEUED = "QUEUED"
    #: Has all its slots.
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: Tasks that will not run any more.
ENDED_TASKS = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})


class TaskShape(Message, frozen=True):
    """A shape of a task: the number of slots it runs on."""

    slots: Annotated[int, Meta(ge=1, le=MOST_SLOTS, description=f"1 to {MOST_SLOTS} slots")]
    #: How long it computes so, as its tenant says; None = by the time model of its function.
    seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One function on several linked slots of a host at once."""

    uuid: str
    project_id: str
    user_id: str
    name: str
    function: str
    #: How many slots it has, or had last; before it has any, the most that it could have.
    slots: int
    #: How many shares it has.
    shares: int
    #: How these have to be linked.
    topology: Topology
    #: The largest input of a share, which determines the compute time of the task.
    input_bytes: int
    created_at: Moment
    #: The shapes of which it gets one (a malleable task); () = it has one, with a slot for each share.
    shapes: tuple[TaskShape, ...] = ()
    shard: Internal[str] = DEFAULT_SHARD
    state: TaskState = TaskState.QUEUED
    cancel_requested: bool = False
    #: How often it was given slots, and how often it lost them.
    attempt: int = 0
    failures: int = 0
    #: Why it waits or failed, for people.
    reason: str = ""
    #: When it is expected to end, while it has slots.
    ends_at: Moment | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()

    @property
    def alternatives(self) -> tuple[TaskShape, ...]:
        """The shapes in which it can run: one or more."""
        return self.shapes or (TaskShape(self.shares),)


def longest_queue(shares: int, slots: int) -> int:
    """Return how many shares the slot with the most of them computes, one after the other."""
    return -(-shares // slots)


def slot_of_share(index: int, shares: int, slots: int) -> int:
    """Return which of the slots computes a share: neighbours share a slot, and no slot has two more than another."""
    return index * slots // shares
