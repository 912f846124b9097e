"""Dry run of a task: the outcome for a task that is not stored, by the same rules that give tasks their slots."""

from collections.abc import Sequence

from fpga_pool.model.messages.plans import PlannedPart, PlannedTask
from fpga_pool.model.objects.pool import Job
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.shared.dry_runs import DryRunContext, supposed
from fpga_pool.model.rules.task.decisions import Choice, TaskView, quickest, share_places, task_outlook
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed, shared


def plan_task(task: Task, shares: Sequence[Job], context: DryRunContext) -> PlannedTask:
    """Return the plan for a task made by `admission.admit_task`, as if it was queued behind all waiting tasks."""

    def suppose(tx: Transaction) -> Transaction:
        return supposed(
            tx,
            open_tasks=lambda: [*tx.open_tasks(), task],
            task=lambda uuid: task if uuid == task.uuid else tx.task(uuid),
            batch_jobs=lambda uuid: shares if uuid == task.uuid else tx.batch_jobs(uuid),
        )

    decided = context.decide(context.families().tasks, lambda: context.supposing(task.shard, suppose))
    if decided is None:
        raise AssertionError("a task that waits is decided on")
    snapshot, decision = decided
    choice = next((one for one in decision.wanted or () if one.task.uuid == task.uuid), None)
    waits = _waits(snapshot.view, task, shares)
    if choice is None:
        return changed(waits, pending_reason=decision.explained(waits.pending_reason))
    return _begins(snapshot.view, choice, shares, waits)


def _waits(view: TaskView, task: Task, shares: Sequence[Job]) -> PlannedTask:
    """Return the result for a task that has to wait."""
    reason, expected_at = task_outlook(view, task.uuid)
    shapes, ends_at = view.shapes.get(task.uuid, ()), None
    if expected_at is not None:
        ends_at = expected_at + view.load_s[task.uuid] + quickest(shapes)[1]
    return PlannedTask(
        **shared(task, PlannedTask)
        | {"slots": None, "ends_at": ends_at, "input_bytes": sum(share.input_bytes for share in shares)},
        ahead=sum(one.uuid != task.uuid for one in view.tasks),
        lower_bound_s=quickest(shapes)[1] if shapes else None,
        loads=0,
        dispatched_at=None,
        pending_reason=reason,
        expected_at=expected_at,
        slot_list=(),
        share_list=tuple(PlannedPart(**shared(share, PlannedPart)) for share in shares),
    )


def _begins(view: TaskView, choice: Choice, shares: Sequence[Job], waits: PlannedTask) -> PlannedTask:
    """Return the result for a task that gets its slots at once."""
    seen = {slot.name: slot for on_host in view.candidates[choice.task.function] for slot in on_host.slots}
    places = list(share_places([seen[name] for name in choice.slots], choice, shares, view.load_s[choice.task.uuid]))
    slots = {place.slot.name: place.slot for place in places}
    loading = {name for name, slot in slots.items() if slot.function != choice.task.function}
    begins_at = view.now_s + places[0].start_s
    return changed(
        waits,
        slots=len(choice.slots),
        loads=len(loading),
        dispatched_at=view.now_s,
        pending_reason="",
        expected_at=begins_at,
        ends_at=begins_at + choice.work_s,
        slot_list=choice.slots,
        share_list=tuple(
            PlannedPart(
                **shared(place.share, PlannedPart)
                | {
                    "host": place.slot.host,
                    "slot": place.slot.name,
                    "start_s": place.start_s,
                    "end_s": place.end_s,
                    "loads": place.slot.name in loading and place.rank == 0,
                }
            )
            for place in places
        ),
    )
