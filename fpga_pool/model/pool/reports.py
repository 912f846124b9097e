"""What agents report, applied in the order in which it happened."""

from collections.abc import Sequence

from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.lifecycle.job import JOB
from fpga_pool.model.lifecycle.slot import SLOT
from fpga_pool.model.messages import JobFinished, Report, SlotChanged
from fpga_pool.model.objects import Run
from fpga_pool.model.pool.changes import change_job, change_slot
from fpga_pool.model.transaction import Transaction


def apply_reports(tx: Transaction, host: str, reports: Sequence[Report], now_s: float) -> list[str]:
    """Apply what `host` reports; return why each void report is void, for the log.

    A report is void when it is about something that is over (an attempt that was displaced meanwhile, a job that
    ended) or not the host's own.  Nothing is lost by that: the pool has decided otherwise since.
    """
    void = []
    for report in reports:
        complaint = (
            _apply_slot_report(tx, host, report, now_s)
            if isinstance(report, SlotChanged)
            else _apply_job_report(tx, host, report, now_s)
        )
        if complaint:
            void.append(f"{type(report).__name__}: {complaint}")
    return void


def _apply_slot_report(tx: Transaction, host: str, report: SlotChanged, now_s: float) -> str:
    try:
        slot = tx.slot(report.slot)
    except NotFound:
        return f"no slot {report.slot}; the next heartbeat will tell of it"
    if slot.host != host:
        return f"slot {report.slot} is on host {slot.host}, not on {host}"
    if not SLOT.allows(slot.state, SlotChanged):
        return f"slot {report.slot} is {slot.state}"
    change_slot(tx, slot, report, now_s)
    return ""


def _apply_job_report(tx: Transaction, host: str, report: Report, now_s: float) -> str:
    assert not isinstance(report, SlotChanged)  # noqa: S101
    try:
        job = tx.job(report.job)
    except NotFound:
        return f"no job {report.job}"
    if (job.host, job.attempt) != (host, report.attempt):
        return f"job {job.uuid} is at attempt {job.attempt} on {job.host or 'no host'}, not {report.attempt} on {host}"
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
    change_job(tx, job, report, now_s)
    return ""
