"""Tasks (lattice paper) as frozen values: one function on several linked slots at once.

The shares of a task are the jobs of a batch with the task's uuid, so inputs, computation and results are handled as for
all jobs.  A rigid task needs a slot for each share.  A malleable task has several shapes: on fewer slots than it has
shares, a slot computes several shares one after the other.  As in `model.objects.pool`, points in time are UTC seconds,
and a task has a `generation` and a `history`.
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

#: Maximum number of slots of a task, because the search represents sets of slots as the bits of one integer.
MOST_SLOTS = 62
#: Used as the policy of the batch of a task, which is neither planned nor online.
TASK_POLICY = "task"


class TaskState(StrEnum):
    """State of a task."""

    #: Waits without slots.
    QUEUED = "QUEUED"
    #: Has all its slots.
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: States of tasks that have ended.
ENDED_TASKS = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})


class TaskShape(Message, frozen=True):
    """A shape of a task: the number of slots it runs on."""

    slots: Annotated[int, Meta(ge=1, le=MOST_SLOTS, description=f"1 to {MOST_SLOTS} slots")]
    #: Compute time in this shape as given by the tenant; None = by the time model of its function.
    seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One function on several linked slots of a host at once."""

    uuid: str
    project_id: str
    user_id: str
    name: str
    function: str
    #: Number of slots that it has or had last; before it gets any, the most that it can get.
    slots: int
    #: Number of shares.
    shares: int
    #: Required topology of its slots.
    topology: Topology
    #: Size of the largest input of a share, which determines the compute time of the task.
    input_bytes: int
    created_at: Moment
    #: Alternative shapes of a malleable task; () = a rigid task, with a slot for each share.
    shapes: tuple[TaskShape, ...] = ()
    shard: Internal[str] = DEFAULT_SHARD
    state: TaskState = TaskState.QUEUED
    cancel_requested: bool = False
    #: Number of times that it got slots, and that it lost them.
    attempt: int = 0
    failures: int = 0
    #: Human-readable reason why it waits or failed.
    reason: str = ""
    #: Expected end, while it has slots.
    ends_at: Moment | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()

    @property
    def alternatives(self) -> tuple[TaskShape, ...]:
        """The shapes in which it can run, at least one."""
        return self.shapes or (TaskShape(self.shares),)


def longest_queue(shares: int, slots: int) -> int:
    """Return the largest number of shares that one slot computes, one after the other."""
    return -(-shares // slots)


def slot_of_share(index: int, shares: int, slots: int) -> int:
    """Return the slot that computes a share: a slot gets neighboring shares, and the numbers differ by 1 at most."""
    return index * slots // shares
