"""Estimates of what is left of the transfers in progress."""

from collections.abc import Iterable

import numpy as np

from fpga_pool.core.types import EarlierTransfers, PoolView
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES
from fpga_pool.model.objects.pool import Job, JobState
from fpga_pool.model.objects.progress import late_s
from fpga_pool.model.rules.batch.planning import Snapshot
from fpga_pool.model.transaction import Transaction

#: Minimum expected duration of a transfer.
_INSTANT_S = 1e-6


def is_astray(job: Job) -> bool:
    """Return whether the input of a job was reported not to move as planned."""
    return job.state is JobState.WAITING_INPUT and bool(job.transfer) and job.moved_bytes is not None


class TransfersLeft:
    """Estimates what is left of transfers at `now_s`; late ones follow each other in the order of the calls."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        #: By link, the time until which late transfers are expected to occupy it.
        self._late_until_s: dict[str, float] = {}

    def pieces(self, job: Job) -> list[tuple[float, float, float]]:
        """Return begin, end and rate of what is left of a job's transfer, in seconds from now."""
        if job.state is not JobState.WAITING_INPUT or not job.transfer:
            return []
        shift_s = -self.since_dispatch_s(job) + self._behind_s(job)
        pieces = [
            (max(piece.begin_s + shift_s, 0.0), piece.end_s + shift_s, piece.bps)
            for piece in job.transfer
            if piece.end_s + shift_s > 0.0
        ]
        if pieces:
            return pieces
        # The transfer should have been complete by now.
        at_an_instant = (0.0, _INSTANT_S, job.transfer[-1].bps)
        return [at_an_instant if is_astray(job) else self._late_piece(job, -(job.transfer[-1].end_s + shift_s))]

    def since_dispatch_s(self, job: Job) -> float:
        """Return the time since time 0 of a job's plan."""
        return self._now_s - (job.dispatched_at or job.created_at)

    def _behind_s(self, job: Job) -> float:
        """Return the reported lateness of a transfer, which is assumed to stay the same; 0 if none was reported."""
        if not is_astray(job):
            return 0.0
        reported_s = (job.moved_at or 0.0) - (job.dispatched_at or job.created_at)
        return late_s(job.transfer, job.input_bytes, job.moved_bytes or 0, reported_s)

    def _late_piece(self, job: Job, late_s: float) -> tuple[float, float, float]:
        """Return the expected rest of a late transfer: as long again as it is late, at most its whole duration.

        How much of it has moved was not reported.  Late transfers on the same link are expected one after the other.
        """
        all_s = sum(piece.end_s - piece.begin_s for piece in job.transfer)
        links = (f"from {job.requester}", f"to {job.host}")
        begin_s = max(self._late_until_s.get(link, 0.0) for link in links)
        end_s = begin_s + max(min(late_s, all_s), _INSTANT_S)
        self._late_until_s |= dict.fromkeys(links, end_s)
        return begin_s, end_s, job.transfer[-1].bps


def inputs_under_way(tx: Transaction, snap: Snapshot, now_s: float, begin_s: float) -> list[Job]:
    """Return the jobs whose inputs are expected to move after `begin_s`, when the plan of a snapshot begins.

    If large inputs are to be planned, large inputs that are overdue at `now_s` are included.  Small inputs move in one
    burst: an overdue one is not considered late, since its report is on its way.
    """
    under_way = list(tx.inputs_due(begin_s)) if snap.inputs_due_at > begin_s else []
    if snap.inputs_due_at > 0.0 and any(job.input_bytes > SMALL_INPUT_BYTES for job in snap.jobs):
        under_way += tx.overdue_inputs(now_s, above_bytes=SMALL_INPUT_BYTES)
    return under_way


def earlier_transfers(jobs: Iterable[Job], view: PoolView, now_s: float, begin_s: float) -> EarlierTransfers:
    """Return what is left of the jobs' transfers after `begin_s`, as of `now_s`, between hosts of the view."""
    left, lead_s = TransfersLeft(now_s), begin_s - now_s
    rows = [
        (view.host_index[job.requester], view.host_index[job.host], max(from_s - lead_s, 0.0), until_s - lead_s, bps)
        for job in jobs
        if job.requester in view.host_index and job.host in view.host_index and job.requester != job.host
        for from_s, until_s, bps in left.pieces(job)
        if until_s > lead_s
    ]
    columns = np.array(rows).reshape(-1, 5).T
    return EarlierTransfers(
        requester=columns[0].astype(np.int64), responder=columns[1].astype(np.int64),
        begin_s=columns[2], end_s=columns[3], bps=columns[4],
    )  # fmt: skip
