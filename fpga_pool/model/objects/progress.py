"""Progress of a transfer, and its difference from the plan.

A plan covers the bytes that had not moved when it was made: all of the input at first, or the remaining bytes if the
rates of a transfer under way were changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fpga_pool.model.fields import Limit
from fpga_pool.model.objects.pool import Job, RateSegment
from fpga_pool.model.values import shared

#: Smaller deviations are not reported, as clock differences, the opening of a stream and data in flight cause them.
TOLERATED_S = 0.5
#: Tolerance for rounding: bytes are integers, rates are not.
_ROUNDING_BYTES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The input of a job under way from its requester to a host."""

    job: str
    name: str
    batch_uuid: str
    project_id: str
    function: str
    requester: str
    host: str
    input_bytes: int
    #: Planned rate at this moment; infinite if no rates are planned.
    planned_bps: Limit
    #: Rate at which the input arrived between the last two heartbeats of the host.
    measured_bps: Limit


def flow_of(job: Job, measured_bps: float, now_s: float) -> Flow:
    """Return the flow of a job whose input arrives at the given rate."""
    t_s = now_s - (job.dispatched_at or now_s)
    planned_bps = next((piece.bps for piece in job.transfer if piece.begin_s <= t_s < piece.end_s), 0.0)
    return Flow(
        **shared(job, Flow),
        job=job.uuid,
        planned_bps=planned_bps if job.transfer else math.inf,
        measured_bps=measured_bps,
    )


def planned_bytes(transfer: Sequence[RateSegment]) -> float:
    """Return the number of bytes that a plan covers."""
    return sum(piece.bps * (piece.end_s - piece.begin_s) for piece in transfer) / 8.0


def moved_bytes(transfer: Sequence[RateSegment], input_bytes: int, t_s: float) -> float:
    """Return how many bytes of an input should have moved at `t_s` on the plan's clock."""
    return input_bytes - planned_bytes(transfer) + _carried_bytes(transfer, t_s)


def _carried_bytes(transfer: Sequence[RateSegment], t_s: float) -> float:
    return sum(piece.bps * max(min(piece.end_s, t_s) - piece.begin_s, 0.0) for piece in transfer) / 8.0


def plan_time_s(transfer: Sequence[RateSegment], input_bytes: int, moved_bytes: float) -> float:
    """Return when, on the plan's clock, this many bytes of the input should have moved; not before the plan's start."""
    ahead_bits = 8.0 * (moved_bytes - input_bytes + planned_bytes(transfer))
    for piece in transfer:
        bits = piece.bps * (piece.end_s - piece.begin_s)
        if ahead_bits < bits - 8.0 * _ROUNDING_BYTES:
            return piece.begin_s + max(ahead_bits, 0.0) / piece.bps
        ahead_bits -= bits
    return transfer[-1].end_s


def late_s(transfer: Sequence[RateSegment], input_bytes: int, moved_bytes: float, t_s: float) -> float:
    """Return by how many seconds a transfer is behind its plan at `t_s` on the plan's clock; negative = ahead."""
    missing_bytes = input_bytes - planned_bytes(transfer) + _carried_bytes(transfer, t_s) - moved_bytes
    if abs(missing_bytes) <= _ROUNDING_BYTES:
        return 0.0  # it may be in a planned pause, during which nothing moves
    reached_s = plan_time_s(transfer, input_bytes, moved_bytes)
    if reached_s == transfer[0].begin_s:
        return max(t_s - reached_s, 0.0)
    return t_s - reached_s


def reported_bytes(transfer: Sequence[RateSegment], input_bytes: int, moved_bytes: int, t_s: float) -> int | None:
    """Return the progress of a transfer to report; None while it is about as planned."""
    differs = bool(transfer) and abs(late_s(transfer, input_bytes, moved_bytes, t_s)) > TOLERATED_S
    return moved_bytes if differs else None
