"""Objects as JSON: one function per noun.

Points in time are ISO 8601 in UTC.  A number that is not finite (a NIC without a limit) is null.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fpga_pool.model.messages.requests import Calibration, FunctionInfo, GangDetail, TaskDetail, Ticket
from fpga_pool.model.objects.gangs import Gang, Migration, Process
from fpga_pool.model.objects.pool import Batch, HistoryEntry, Host, Job, RateSegment, Slot, place_kind
from fpga_pool.model.objects.tasks import Task

View = dict[str, Any]


def time(at: float | None) -> str | None:
    """Return seconds since the epoch as a date."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def number(value: float | None) -> float | None:
    """Return a number that JSON has."""
    return value if value is not None and math.isfinite(value) else None


def batch(thing: Batch) -> View:
    """Show a batch in a list."""
    return {
        "uuid": thing.uuid,
        "name": thing.name,
        "project_id": thing.project_id,
        "user_id": thing.user_id,
        "policy": thing.policy,
        "state": thing.state,
        "cancel_requested": thing.cancel_requested,
        "jobs": thing.jobs,
        "jobs_completed": thing.jobs_completed,
        "jobs_failed": thing.jobs_failed,
        "jobs_cancelled": thing.jobs_cancelled,
        "planned_makespan_s": number(thing.planned_makespan_s),
        "lower_bound_s": number(thing.lower_bound_s),
        "planned_completion_s": number(thing.planned_completion_s),
        "completion_bound_s": number(thing.completion_bound_s),
        "created_at": time(thing.created_at),
        "dispatched_at": time(thing.dispatched_at),
        "ended_at": time(thing.ended_at),
    }


def job(thing: Job) -> View:
    """Show a job; its plan is relative to `dispatched_at`."""
    return {
        "uuid": thing.uuid,
        "batch_uuid": thing.batch_uuid,
        "project_id": thing.project_id,
        "user_id": thing.user_id,
        "index": thing.index,
        "name": thing.name,
        "function": thing.function,
        "requester": thing.requester,
        "input_bytes": thing.input_bytes,
        "state": thing.state,
        "cancel_requested": thing.cancel_requested,
        "attempt": thing.attempt,
        "reason": thing.reason,
        "error_code": thing.error_code,
        "host": thing.host,
        "slot": thing.slot,
        "place": place_kind(thing.slot),
        "done": thing.done,
        "order": thing.order,
        "start_s": number(thing.start_s),
        "end_s": number(thing.end_s),
        "transfer": transfer(thing.transfer),
        "result_transfer": transfer(thing.result_transfer),
        "created_at": time(thing.created_at),
        "dispatched_at": time(thing.dispatched_at),
        "staged_at": time(thing.staged_at),
        "started_at": time(thing.started_at),
        "finished_at": time(thing.finished_at),
        "ended_at": time(thing.ended_at),
        "compute_s": number(thing.compute_s),
        "result_bytes": thing.result_bytes,
        "result_sha256": thing.result_sha256,
    }


def gang(thing: Gang) -> View:
    """Show a gang in a list."""
    return {
        "uuid": thing.uuid,
        "name": thing.name,
        "project_id": thing.project_id,
        "user_id": thing.user_id,
        "state": thing.state,
        "cancel_requested": thing.cancel_requested,
        "processes": thing.processes,
        "runtime_s": thing.runtime_s,
        "cpu_usage": thing.cpu_usage,
        "work_s": thing.work_s,
        "image": thing.image,
        "command": thing.command,
        "attempt": thing.attempt,
        "failures": thing.failures,
        "reason": thing.reason,
        "migrations": thing.migrations,
        "kills": thing.kills,
        "swaps": thing.swaps,
        "front_s": thing.front_s,
        "behind_s": thing.behind_s,
        "cpu_s": thing.cpu_s,
        "created_at": time(thing.created_at),
        "started_at": time(thing.started_at),
        "ends_at": time(thing.ends_at),
        "ended_at": time(thing.ended_at),
    }


def gang_detail(detail: GangDetail) -> View:
    """Show a gang with what can be said of it now."""
    return {
        **gang(detail.gang),
        "pending_reason": detail.pending_reason,
        "expected_at": time(detail.expected_at),
        "done_s": detail.done_s,
        "process_list": [process(item) for item in detail.processes],
        "migration_list": [migration(item) for item in detail.migrations],
        "history": history(detail.gang.history),
    }


def process(thing: Process) -> View:
    """Show a process of a gang; it had done `done_s` at `progress_at`, and goes on at `rate` since."""
    return {
        "uuid": thing.uuid,
        "gang_uuid": thing.gang_uuid,
        "index": thing.index,
        "attempt": thing.attempt,
        "state": thing.state,
        "processor": thing.processor,
        "host": thing.host,
        "tier": thing.tier,
        "reason": thing.reason,
        "done_s": thing.done_s,
        "rate": thing.rate,
        "progress_at": time(thing.progress_at),
        "cpu_s": thing.cpu_s,
    }


def migration(thing: Migration) -> View:
    """Show a migration of a gang."""
    return {
        "uuid": thing.uuid,
        "gang_uuid": thing.gang_uuid,
        "attempt": thing.attempt,
        "state": thing.state,
        "reason": thing.reason,
        "began_at": time(thing.began_at),
        "ended_at": time(thing.ended_at),
    }


def slot(thing: Slot) -> View:
    """Show a slot in a list."""
    return {
        "uuid": thing.uuid,
        "name": thing.name,
        "host": thing.host,
        "card": thing.card,
        "region": thing.region,
        "board": thing.board,
        "kind": thing.kind,
        "links": thing.links,
        "state": thing.state,
        "function": thing.function,
        "job": thing.job,
        "drain_requested": thing.drain_requested,
        "reason": thing.reason,
        "reconfigurations": thing.reconfigurations,
        "loaded_at": time(thing.loaded_at),
    }


def host(thing: Host) -> View:
    """Show a host."""
    return {
        "name": thing.name,
        "alive": thing.alive,
        "egress_bps": number(thing.egress_bps),
        "ingress_bps": number(thing.ingress_bps),
        "data_address": thing.data_address,
        "data_port": thing.data_port,
        "data_tls": thing.data_tls,
        "refused_streams": thing.refused_streams,
        "refused_commands": thing.refused_commands,
        "refused_messages": thing.refused_messages,
        "boot": thing.boot,
        "heard_at": time(thing.heard_at),
    }


def function(info: FunctionInfo) -> View:
    """Show a function of the catalogue."""
    return {
        "name": info.name,
        "version": info.version,
        "slot_kinds": list(info.slot_kinds),
        "io_bps": number(info.io_bps),
        "preemptible": info.preemptible,
        "speedup": number(info.speedup),
        "slots": info.slots,
    }


def calibration(fit: Calibration) -> View:
    """Show how well a time model fits."""
    return {
        "function": fit.function,
        "board": fit.board,
        "runs": fit.runs,
        "catalogue_a_s": number(fit.catalogue_a_s),
        "catalogue_b_s_per_byte": number(fit.catalogue_b_s_per_byte),
        "fitted_a_s": number(fit.fitted_a_s),
        "fitted_b_s_per_byte": number(fit.fitted_b_s_per_byte),
        "mean_relative_error": number(fit.mean_relative_error),
        "worst_relative_error": number(fit.worst_relative_error),
    }


def ticket(leave: Ticket) -> View:
    """Show a ticket: the one view that holds a secret."""
    return {
        "job": leave.job,
        "attempt": leave.attempt,
        "purpose": leave.purpose,
        "address": leave.address,
        "port": leave.port,
        "token": leave.token,
        "input_bytes": leave.input_bytes,
        "transfer": transfer(leave.transfer),
        "elapsed_s": leave.elapsed_s,
        "shaped": leave.shaped,
    }


def transfer(segments: Sequence[RateSegment]) -> list[View]:
    """Show the planned rates of a transfer."""
    return [{"begin_s": piece.begin_s, "end_s": piece.end_s, "bps": number(piece.bps)} for piece in segments]


def history(entries: Sequence[HistoryEntry]) -> list[View]:
    """Show what happened to an object, oldest first."""
    return [
        {"at": time(entry.at), "event": entry.event, "before": entry.before, "after": entry.after} for entry in entries
    ]


def task(thing: Task) -> View:
    """Show a task in a list."""
    return {
        "uuid": thing.uuid,
        "name": thing.name,
        "project_id": thing.project_id,
        "user_id": thing.user_id,
        "state": thing.state,
        "cancel_requested": thing.cancel_requested,
        "function": thing.function,
        "slots": thing.slots,
        "shares": thing.shares,
        "shapes": [{"slots": shape.slots, "seconds": number(shape.seconds)} for shape in thing.shapes],
        "topology": thing.topology,
        "input_bytes": thing.input_bytes,
        "attempt": thing.attempt,
        "failures": thing.failures,
        "reason": thing.reason,
        "created_at": time(thing.created_at),
        "started_at": time(thing.started_at),
        "ends_at": time(thing.ends_at),
        "ended_at": time(thing.ended_at),
    }


def task_detail(detail: TaskDetail) -> View:
    """Show a task with what can be said of it now."""
    return {
        **task(detail.task),
        "pending_reason": detail.pending_reason,
        "expected_at": time(detail.expected_at),
        "slot_list": list(detail.slots),
        "share_list": [job(share) for share in detail.shares],
        "history": history(detail.task.history),
    }
