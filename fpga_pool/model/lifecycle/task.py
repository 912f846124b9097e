"""Life cycle of a task: queued until it gets all its slots, requeued if it loses one, then a final state."""

from dataclasses import replace

from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.tasks import Task, TaskState


class TaskPlaced(Event, frozen=True, kw_only=True):
    """The task got all its slots."""

    slots: int
    ends_at: float


class TaskDisplaced(Event, frozen=True, kw_only=True):
    """The task lost a slot, or a share was stopped: it has released all slots, and waits at its old queue position."""

    reason: str


class TaskCancelRequested(Event, frozen=True, kw_only=True):
    """The tenant requests the cancellation of the task."""


class TaskCompleted(Event, frozen=True, kw_only=True):
    """All shares of the task are complete."""


class TaskFailed(Event, frozen=True, kw_only=True):
    """A share of the task has failed permanently, and the others have ended."""

    reason: str


class TaskCancelled(Event, frozen=True, kw_only=True):
    """Nothing is left of a task whose cancellation was requested."""


Outcome = tuple[Task, list[Action]]


def _placed(task: Task, event: TaskPlaced, now_s: float) -> Outcome:
    placed = replace(
        task,
        state=TaskState.RUNNING,
        slots=event.slots,
        attempt=task.attempt + 1,
        reason="",
        ends_at=event.ends_at,
        started_at=now_s if task.started_at is None else task.started_at,
    )
    return placed, []


def _displaced(task: Task, event: TaskDisplaced, now_s: float) -> Outcome:
    queued = replace(task, state=TaskState.QUEUED, ends_at=None, failures=task.failures + 1, reason=event.reason)
    return queued, []


def _ended(task: Task, state: TaskState, now_s: float, reason: str = "") -> Outcome:
    return replace(task, state=state, ended_at=now_s, ends_at=None, reason=reason), []


def _completed(task: Task, event: TaskCompleted, now_s: float) -> Outcome:
    return _ended(task, TaskState.COMPLETED, now_s)


def _failed(task: Task, event: TaskFailed, now_s: float) -> Outcome:
    return _ended(task, TaskState.FAILED, now_s, event.reason)


def _cancelled(task: Task, event: TaskCancelled, now_s: float) -> Outcome:
    return _ended(task, TaskState.CANCELLED, now_s)


_WHILE_OPEN: dict[type, Rule[Task]] = {
    TaskCancelRequested: sets(cancel_requested=True),
    TaskCompleted: _completed,
    TaskFailed: _failed,
    TaskCancelled: _cancelled,
}
_RULES: dict[tuple[TaskState, type], Rule[Task]] = {
    (TaskState.QUEUED, TaskPlaced): _placed,
    (TaskState.RUNNING, TaskDisplaced): _displaced,
    **{(state, event): rule for state in (TaskState.QUEUED, TaskState.RUNNING) for event, rule in _WHILE_OPEN.items()},
}

TASK = Table[Task]("task", _RULES)
