"""Replanning of the work in progress: build the policy's problem from the objects, and commit the new plan.

Jobs that compute, whose inputs are moving, or that begin soon keep their places.  All others may get another place (as
a new attempt, so reports about the former one are void) or other times. Transfers in progress get new rates if they do
not move as planned.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import numpy as np

from fpga_pool.core.makespan.fluid import Segments
from fpga_pool.core.makespan.greedy import simple_bound_s
from fpga_pool.core.makespan.replan import Replan
from fpga_pool.core.makespan.underway import Underway
from fpga_pool.core.types import BatchProblem, EarlierTransfers, Ints, PoolView, floats, ints
from fpga_pool.model.lifecycle.batch import BATCH, BatchPlanned
from fpga_pool.model.lifecycle.job import Moved, Retimed
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES
from fpga_pool.model.objects.pool import Job, JobState, RateSegment
from fpga_pool.model.rules.batch.placing import PlanRequest, placements, planned_s, transfers_of, unchanged
from fpga_pool.model.rules.batch.planning import Snapshot, alone, ends_of, fairness_groups, jobs_by_batch, with_servers
from fpga_pool.model.rules.batch.transfers import TransfersLeft, is_astray
from fpga_pool.model.rules.shared.changes import change_job, settle_slots
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanProblem:
    """The work in progress that a policy replans, and the objects that its indices refer to."""

    underway: Underway
    #: (J,) jobs as they were read.
    jobs: tuple[Job, ...]
    #: (A,) names of the slots.
    slots: tuple[str, ...]

    @property
    def transfers(self) -> EarlierTransfers:
        """Transfers that are already planned on the network."""
        problem, pieces = self.underway.problem, self.underway.transfers
        return EarlierTransfers(
            requester=problem.requester[pieces.flow],
            responder=problem.responder[self.underway.accelerator[pieces.flow]],
            begin_s=pieces.begin_s,
            end_s=pieces.end_s,
            bps=pieces.bps,
        )

    @property
    def pending(self) -> Ints:
        """(n,) rows of the pending jobs: those of the waiting batch."""
        return np.array([row for row, job in enumerate(self.jobs) if job.state is JobState.PENDING], np.int64)

    @property
    def request(self) -> PlanRequest:
        """The problem without the plan in progress."""
        return PlanRequest(problem=self.underway.problem, jobs=self.jobs, slots=self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The outcome of replanning."""

    #: Pending jobs that got a place, jobs that got another place, and jobs that only got other times.
    placed: list[Job] = field(default_factory=list)
    moved: list[Job] = field(default_factory=list)
    retimed: list[Job] = field(default_factory=list)


def worth_replanning(view: PoolView, settings: PoolSettings) -> bool:
    """Return whether some slot has work beyond the replan horizon, so that some of it could still be changed."""
    return float(view.slot_ready_s.max(initial=0.0)) > settings.replan_horizon_s


def replan_problem(
    tx: Transaction,
    snap: Snapshot,
    settings: PoolSettings,
    now_s: float,
    may_move: Callable[[str], bool],
    *,
    late: bool = False,
) -> ReplanProblem | None:
    """Return the work in progress at `now_s` and the pending jobs of the snapshot; None if nothing can be planned.

    Parameters
    ----------
    tx, snap
        The transaction, and the snapshot that `planning.snapshot` or `planning.all_placed` returned in it.
    settings
        Replan horizon and maximum number of attempts.
    now_s
        Time 0 of the plan.
    may_move
        Returns whether the jobs of a policy, by name, may be moved.
    late
        Whether transfers are late: those that have not begun are then planned again, and so is the rest of those
        reported not to move as planned.

    """
    queues = {slot: list(jobs) for slot, jobs in groupby(tx.active_jobs(), attrgetter("slot"))}
    snap = with_servers(tx, snap, [job for queue in queues.values() for job in queue])
    view = snap.view
    functions = {job.function for job in snap.jobs} | {job.function for queue in queues.values() for job in queue}
    known = np.array([view.function_index[name] for name in sorted(functions) if name in view.function_index], np.int64)
    useful = np.flatnonzero(view.slot_usable & view.can_run[:, known].any(axis=1)) if len(known) else ints([])
    if len(useful) == 0:
        return None
    rows = _Rows(snap, useful, settings, now_s)
    concerned = dict.fromkeys(job.batch_uuid for jobs in (*queues.values(), snap.jobs) for job in jobs)
    batches = [tx.batch(uuid) for uuid in concerned]
    free = {batch.uuid for batch in batches if may_move(batch.policy)}
    for slot in useful.tolist():
        rows.add_queue(slot, queues.get(view.slots[slot], []), free)
    for job in snap.jobs:
        rows.add_pending(job)
    rank = {batch.uuid: number for number, batch in enumerate(sorted(batches, key=attrgetter("rank")))}
    return rows.replan_problem(rank, late=late) if rows.jobs else None


class _Rows:
    """Collects the rows of the problem."""

    def __init__(self, snap: Snapshot, useful: Ints, settings: PoolSettings, now_s: float) -> None:
        self._snap, view = snap, snap.view
        self._view, self._useful, self._settings, self._now_s = view, useful, settings, now_s
        self._number = {slot: number for number, slot in enumerate(useful.tolist())}
        self._ready_s = np.zeros(len(useful))
        self._loaded = np.array(view.slot_function[useful])
        self.jobs: list[Job] = []
        self._accelerator: list[int] = []
        self._start_s: list[float] = []
        self._begun: list[bool] = []
        self._left_bytes: list[int] = []
        #: Host that already has the input; -1 = none.
        self._here: list[int] = []
        self._astray: list[bool] = []
        self._pieces: list[tuple[int, float, float, float]] = []
        self._transfers = TransfersLeft(now_s)

    def add_queue(self, slot: int, queue: Sequence[Job], free: Collection[str]) -> None:
        """Add the jobs that wait on a slot, in order; jobs of batches in `free` may be moved."""
        number = self._number[slot]
        for job in queue:
            if job.state is JobState.RUNNING:
                self._ready_s[number] = self._running_until_s(slot, job)
                self._loaded[number] = self._view.function_index.get(job.function, -1)
        due_s = float(self._ready_s[number])
        for job in queue:
            if job.state is JobState.RUNNING or job.function not in self._view.function_index:
                continue
            pieces = [] if job.input_bytes <= SMALL_INPUT_BYTES else self._transfers.pieces(job)
            arrives_s = max((end_s for _, end_s, _ in pieces), default=0.0)
            start_s = max(due_s, arrives_s)
            # While the slot waits for this input, it computes another job whose input has arrived.
            due_s += self._seconds(slot, job)
            stays = job.batch_uuid not in free or self._must_stay(job, start_s, pieces)
            self._add(job, number, start_s, begun=stays, pieces=pieces)

    def add_pending(self, job: Job) -> None:
        """Add a pending job."""
        self._add(job, -1, 0.0, begun=False, pieces=[])

    def _add(
        self, job: Job, number: int, start_s: float, *, begun: bool, pieces: Sequence[tuple[float, float, float]]
    ) -> None:
        row = len(self.jobs)
        self.jobs.append(job)
        self._accelerator.append(number)
        self._start_s.append(start_s)
        self._begun.append(begun)
        self._astray.append(bool(pieces) and is_astray(job))
        staged, small = job.state is JobState.STAGED, job.input_bytes <= SMALL_INPUT_BYTES
        self._here.append(self._view.host_index[job.host] if staged and not small else -1)
        left_bytes = job.input_bytes
        if staged or small:  # a small input needs no planned rates: it moves in one burst once its slot is decided
            left_bytes = 0
        elif number >= 0 and begun:
            left_bytes = int(sum(bps * (end_s - begin_s) for begin_s, end_s, bps in pieces) / 8.0)
        self._left_bytes.append(left_bytes)
        self._pieces += [(row, *piece) for piece in pieces]

    def _seconds(self, slot: int, job: Job) -> float:
        """Return the computation time of a job on a slot by the current time models."""
        function = self._view.function_index[job.function]
        per_byte = float(self._view.time_b_s_per_byte[slot, function])
        return float(self._view.time_a_s[slot, function]) + per_byte * job.input_bytes

    def _running_until_s(self, slot: int, job: Job) -> float:
        """Return the expected seconds until a running job ends; a late job is expected to become twice as late."""
        known = job.function in self._view.function_index
        seconds = self._seconds(slot, job) if known else (job.end_s or 0.0) - (job.start_s or 0.0)
        end_s = (job.started_at or self._now_s) + seconds - self._now_s
        return abs(end_s)

    def _must_stay(self, job: Job, start_s: float, pieces: Sequence[tuple[float, float, float]]) -> bool:
        """Return whether a waiting job keeps its place: it begins soon, its input moves, or it was moved too often."""
        horizon_s = self._settings.replan_horizon_s
        moves = bool(pieces) and self._transfers.since_dispatch_s(job) + horizon_s > job.transfer[0].begin_s
        # Without planned rates, the client sends the input at once.
        unlimited = job.state is JobState.WAITING_INPUT and not pieces and job.input_bytes > SMALL_INPUT_BYTES
        # Moves may use up half of the attempts; the other half is reserved for faults.
        settled = job.counted_attempts > self._settings.max_attempts // 2
        return moves or unlimited or settled or job.cancel_requested or start_s < horizon_s

    def replan_problem(self, rank: Mapping[str, int], *, late: bool) -> ReplanProblem:
        """Return the problem, with the batches in the order of their `rank`."""
        view, useful = self._view, self._useful
        functions = np.array([view.function_index[job.function] for job in self.jobs])
        input_bytes = np.array([job.input_bytes for job in self.jobs], np.int64)
        here = np.array(self._here)[:, None]
        # A large input that has already arrived on a host is not sent to another one.
        reachable = (here < 0) | (view.slot_host[useful] == here)
        problem = BatchProblem(
            seconds=floats(np.where(reachable, view.compute_s(useful, functions, input_bytes), np.inf)),
            input_bytes=ints(self._left_bytes),
            # The inputs of subtasks are not sent by transfers of this problem: they are results of other subtasks.
            requester=ints([view.host_index[job.requester or job.host] for job in self.jobs]),
            egress_bps=view.egress_bps,
            responder=ints(view.slot_host[useful]),
            ingress_bps=view.ingress_bps,
            ready_s=floats(self._ready_s),
            group=fairness_groups(self.jobs, rank),
            local_host=ints(np.arange(len(view.hosts))),
            function=ints(functions),
            loaded=ints(self._loaded),
            load_s=floats(view.slot_load_s[useful]),
            port=ints(view.slot_card[useful]),
            output_bytes=ints([self._snap.result_bytes(job) for job in self.jobs]),
            requester_ingress_bps=view.ingress_bps,
            responder_egress_bps=view.egress_bps,
            generation=view.generation,
        )
        columns_of = [np.array(column) for column in zip(*self._pieces, strict=True)] or [np.zeros(0)] * 4
        underway = Underway(
            problem=problem,
            accelerator=np.array(self._accelerator),
            start_s=np.array(self._start_s),
            begun=np.array(self._begun),
            transfers=Segments(columns_of[0].astype(np.int64), *columns_of[1:]),
            retime=late,
            astray=np.array(self._astray),
        )
        return ReplanProblem(underway=underway, jobs=tuple(self.jobs), slots=tuple(view.slots[s] for s in useful))


def commit_replan(
    tx: Transaction, asked: ReplanProblem, found: Replan, settings: PoolSettings, now_s: float
) -> Changes:
    """Apply the plan to every job that has not changed since it was read; other jobs are left as they are."""
    changes, request = Changes(), asked.request
    dispatched_at = now_s + settings.dispatch_lead_s
    rows = unchanged(tx, request, np.flatnonzero(found.placed | found.retimed))
    left: set[str] = set()
    for row, place in placements(tx, request, found.plan, rows[found.placed[rows]], dispatched_at, now_s):
        job = asked.jobs[row]
        if job.state is JobState.PENDING:
            changes.placed.append(change_job(tx, job, place, now_s))
        else:
            changes.moved.append(change_job(tx, job, Moved(place=place), now_s))
            left.add(job.slot)
    settle_slots(tx, sorted(left), now_s)
    transfers = transfers_of(found.plan, len(asked.jobs))
    for row in rows[found.retimed[rows]].tolist():
        job, transfer, start_s = asked.jobs[row], transfers[row], float(found.plan.start_s[row])
        if asked.underway.begun[row]:
            transfer = (*_until_then(job, dispatched_at, settings.dispatch_lead_s), *transfer)
        retimed = Retimed(
            dispatched_at=dispatched_at,
            start_s=start_s,
            end_s=start_s + planned_s(request, found.plan, row),
            transfer=transfer,
        )
        changes.retimed.append(change_job(tx, job, retimed, now_s))
    _promise(tx, asked, found, changes.placed, dispatched_at, now_s)
    return changes


def _until_then(job: Job, begins_at: float, lead_s: float) -> list[RateSegment]:
    """Return the segments of a transfer in progress before `begins_at`, time 0 of the new plan, relative to that."""
    since_s = begins_at - (job.dispatched_at or job.created_at)
    # A transfer that is not complete at its planned end continues at its last rate.
    *before, last = job.transfer
    before.append(changed(last, end_s=max(last.end_s, since_s)))
    spans = [(max(piece.begin_s - since_s, -lead_s), min(piece.end_s - since_s, 0.0), piece.bps) for piece in before]
    return [RateSegment(begin_s, end_s, bps) for begin_s, end_s, bps in spans if begin_s < end_s]


def _promise(
    tx: Transaction, asked: ReplanProblem, found: Replan, placed: Sequence[Job], dispatched_at: float, now_s: float
) -> None:
    """Record in each batch the times promised by its first plan."""
    of_placed = {job.batch_uuid for job in placed}
    for batch_uuid, of_batch in jobs_by_batch(asked.jobs).items():
        rows = ints([row for row in of_batch.tolist() if asked.jobs[row].state is JobState.PENDING])
        if batch_uuid in of_placed and all(asked.jobs[row].attempt == 0 for row in rows.tolist()):
            promised = promise_among_others(asked, found, rows, dispatched_at)
            tx.save(BATCH.transition(tx.batch(batch_uuid), promised, now_s)[0])


def promise_among_others(asked: ReplanProblem, found: Replan, rows: Ints, dispatched_at: float) -> BatchPlanned:
    """Return the times promised to a batch, with the jobs `rows` (n,), by a plan that includes work in progress."""
    # The work in progress is only expected to end at the planned times: it may end or be cancelled at any moment.
    bound_s = simple_bound_s(alone(asked.underway.problem, rows))
    makespan_s, completion_s = ends_of(asked.underway.problem, found.plan, rows)
    return BatchPlanned(
        dispatched_at=dispatched_at,
        makespan_s=makespan_s,
        lower_bound_s=min(bound_s, makespan_s),
        completion_s=completion_s,
        completion_bound_s=min(bound_s, makespan_s),
    )
