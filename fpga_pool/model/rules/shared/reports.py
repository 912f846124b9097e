"""Reports of agents, applied in the order of the events."""

from collections.abc import Sequence
from dataclasses import replace

from fpga_pool.model.exceptions import HostTaken, NotFound
from fpga_pool.model.lifecycle.job import JOB
from fpga_pool.model.lifecycle.slot import SLOT
from fpga_pool.model.messages.agents import (
    FlowSeen,
    JobEvicted,
    JobFailed,
    JobFinished,
    JobReleased,
    Report,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.messages.gangs import ProcessReport
from fpga_pool.model.objects.pool import ACTIVE_JOBS, Host, Job, JobState, Run, SlotState
from fpga_pool.model.rules.gang.reports import apply_gang_report
from fpga_pool.model.rules.shared.changes import change_job, change_slot, settle_slots
from fpga_pool.model.rules.shared.flows import can_shape, shape_flow
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


def apply_reports(
    tx: Transaction, host: str, agent_id: str, numbered: Sequence[tuple[int, Report]], now_s: float
) -> list[str]:
    """Apply the numbered reports of the agent of `host`; return the reason of each ignored report, for the log.

    A report is ignored if it was applied before, concerns an attempt or job that has ended (such as an attempt that was
    displaced meanwhile), or is about another host.  This loses nothing: the pool has made other decisions since.

    Raises
    ------
    HostTaken
        If another agent represents the host.
    NotFound
        If the host is not known yet: its first heartbeat must come before its reports.

    """
    publisher = tx.host(host)
    require_agent(publisher, agent_id)
    fresh = [report for number, report in numbered if number > publisher.reported]
    if fresh:
        tx.save(replace(publisher, reported=numbered[-1][0]))
    void = [f"{len(numbered) - len(fresh)} applied before"] if len(fresh) < len(numbered) else []
    jobs = tx.jobs({report.job for report in fresh if not isinstance(report, SlotChanged | ProcessReport)})
    if len({job.slot for job in jobs}) > 1:
        tx.slots(host)  # read all slots in one query; later reads of single slots need none
    over = {report.job for report in fresh if isinstance(report, ResultDelivered)}
    tx.take_batches({job.batch_uuid for job in jobs if job.uuid in over})
    for report in fresh:
        if complaint := _apply(tx, host, _by_now(report, now_s), now_s):
            void.append(f"{type(report).__name__}: {complaint}")
    left = dict.fromkeys(job.slot for job in jobs if _has_left(job, tx.job(job.uuid)))
    if left:
        settle_slots(tx, list(left), now_s)
    return void


def makes_work(report: Report) -> bool:
    """Return whether, after this report, jobs may need a place or an agent may need a command."""
    if isinstance(report, SlotChanged):
        return report.state in (SlotState.EMPTY, SlotState.FAULTED)
    return isinstance(report, FlowSeen | JobFailed | JobEvicted | JobReleased | ProcessReport)


def frees_place(report: Report) -> bool:
    """Return whether a slot or a CPU may be idle after this report."""
    return isinstance(report, JobFinished) or (isinstance(report, SlotChanged) and report.state is SlotState.READY)


def _apply(tx: Transaction, host: str, report: Report, now_s: float) -> str:
    """Apply a report; return the reason if it is ignored, else ""."""
    if isinstance(report, SlotChanged):
        return _apply_slot_report(tx, host, report, now_s)
    if isinstance(report, ProcessReport):
        return apply_gang_report(tx, host, report, now_s)
    return _apply_job_report(tx, host, report, now_s)


def _by_now(report: Report, now_s: float) -> Report:
    """Return the report with times in the future set to now, in case the clock of its host is wrong."""
    times = {name: getattr(report, name, None) for name in ("at", "transfer_began_at", "staged_at", "started_at")}
    ahead = {name: now_s for name, at in times.items() if at is not None and at > now_s}
    return changed(report, **ahead) if ahead else report


def _has_left(before: Job, now: Job) -> bool:
    return before.state in ACTIVE_JOBS and now.state not in ACTIVE_JOBS


def require_agent(host: Host, agent_id: str) -> None:
    """Raise HostTaken unless the caller is the agent that represents the host."""
    if agent_id != host.agent_id:
        raise HostTaken(
            f"host {host.name}: another agent reports for it; if two hosts have this name, rename one ([agent] host); "
            "if the state directory of this agent was lost, it is accepted after the old one has timed out"
        )


def _apply_slot_report(tx: Transaction, host: str, report: SlotChanged, now_s: float) -> str:
    try:
        slot = tx.slot(report.slot)
    except NotFound:
        return f"no slot {report.slot}; the next heartbeat will add it"
    if slot.host != host:
        return f"slot {report.slot} is on host {slot.host}, not on {host}"
    if not SLOT.allows(slot.state, SlotChanged):
        return f"slot {report.slot} is {slot.state}"
    change_slot(tx, slot, report, now_s)
    return ""


def _apply_job_report(tx: Transaction, host: str, report: Report, now_s: float) -> str:
    assert not isinstance(report, SlotChanged | ProcessReport)  # noqa: S101
    try:
        job = tx.job(report.job)
    except NotFound:
        return f"no job {report.job}"
    if (job.host, job.attempt) != (host, report.attempt):
        return f"job {job.uuid} is at attempt {job.attempt} on {job.host or 'no host'}, not {report.attempt} on {host}"
    if isinstance(report, FlowSeen):
        if job.state is not JobState.WAITING_INPUT or not can_shape(tx, job):
            return f"job {job.uuid} is {job.state}, or its stream is not to be limited"
        shape_flow(tx, job, f"{report.source_address}:{report.source_port}")
        return ""
    if not JOB.allows(job.state, type(report)):
        return f"job {job.uuid} is {job.state}"
    if isinstance(report, JobFinished):
        slot = tx.slot(job.slot)
        tx.record_run(
            Run(
                job=job.uuid,
                attempt=job.attempt,
                function=job.function,
                board=slot.board,
                input_bytes=job.input_bytes,
                compute_s=report.compute_s,
                finished_at=report.at,
            )
        )
    change_job(tx, job, report, now_s, settle=False)
    return ""
