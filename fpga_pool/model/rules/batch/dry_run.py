"""Outlook of batches: the plan that a batch would get if it was submitted, and the reason why a stored one waits."""

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from fpga_pool.core.types import BatchPlan
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.lifecycle.batch import BATCH, BatchPlanned
from fpga_pool.model.messages.plans import PlannedBatch, PlannedJob
from fpga_pool.model.messages.requests import BatchDetail
from fpga_pool.model.objects.pool import ENDED_BATCHES, Batch, Job
from fpga_pool.model.rules.batch.family import BatchView, NewPlan
from fpga_pool.model.rules.batch.placing import PlanRequest, held_by_others, planned_s, usable
from fpga_pool.model.rules.batch.planning import promise
from fpga_pool.model.rules.batch.replanning import promise_among_others
from fpga_pool.model.rules.shared.dry_runs import DryRunContext, pending_batch, supposed
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed, shared

#: Pending reason of work that can be placed by the next cycle.
ABOUT_TO_BE_PLANNED = "it is about to be planned"


class DryRun:
    """Plans one batch that is not stored; `run` is called once.

    Parameters
    ----------
    batch, jobs
        As returned by `admission.admit_batch`.
    context
        The inputs of the dry run.

    """

    def __init__(self, batch: Batch, jobs: Sequence[Job], context: DryRunContext) -> None:
        self._batch, self._jobs, self._context = batch, jobs, context
        self._is_planned = not context.policies.online.is_online(batch.policy)
        #: Jobs that would get a place, by index.
        self._placed: dict[int, PlannedJob] = {}
        #: Why the other jobs would wait, and when they are expected to begin.
        self._reasons: list[str] = []
        self._expected_at: list[float] = []

    def run(self) -> PlannedBatch:
        """Return the plan of the batch, combined from its parts in each shard; the batch ends with the last part."""
        by_shard: defaultdict[str, list[Job]] = defaultdict(list)
        for job in self._jobs:
            by_shard[job.shard].append(job)
        planned = self._batch
        for shard, jobs in sorted(by_shard.items()):
            promised = self._plan(shard, jobs) if self._is_planned else None
            if promised is not None:
                planned, _ = BATCH.transition(planned, promised, self._context.now_s)
            self._explain(shard, [job for job in jobs if job.index not in self._placed])
        begins_at, makespan_s = planned.dispatched_at, planned.planned_makespan_s
        ends_at = None if begins_at is None or makespan_s is None else begins_at + makespan_s
        return PlannedBatch(
            **shared(planned, PlannedBatch),
            ends_at=ends_at,
            late_s=late_s(planned, ends_at),
            pending_reason="; ".join(dict.fromkeys(self._reasons)),
            expected_at=min(self._expected_at, default=None),
            job_list=tuple(self._placed.get(job.index, _unplaced(job)) for job in self._jobs),
        )

    def _plan(self, shard: str, jobs: Sequence[Job]) -> BatchPlanned | None:
        """Plan the jobs of one shard; return what the plan promises, or None if there would be no plan."""
        context, batch = self._context, self._batch
        pending = pending_batch(batch, jobs)

        def suppose(tx: Transaction) -> Transaction:
            """Return a transaction that reads the shard as if this batch was its only pending work."""
            return supposed(
                tx,
                pending_batches=lambda: {batch.uuid: pending},
                batch=lambda uuid: batch if uuid == batch.uuid else tx.batch(uuid),
                pending_jobs=lambda _: jobs,
            )

        decided = context.decide(context.families().batches, lambda: context.supposing(shard, suppose))
        if decided is None:
            return None
        snapshot, decision = decided
        if decision.wanted is None:
            self._reasons += [failure.message for failure in decision.failures]
            return None
        if isinstance(decision.wanted, NewPlan):
            request, plan = decision.wanted.request, decision.wanted.plan
            rows = np.arange(len(request.jobs))
            self._place(snapshot.view, request, plan, rows.tolist())
            return promise(request.problem, plan, rows, context.now_s + snapshot.view.snap.lead_s, {})
        asked, found = decision.wanted.asked, decision.wanted.found
        self._place(snapshot.view, asked.request, found.plan, asked.pending.tolist())
        return promise_among_others(asked, found, asked.pending, context.now_s + context.settings.dispatch_lead_s)

    def _place(self, view: BatchView, request: PlanRequest, plan: BatchPlan, rows: Sequence[int]) -> None:
        hosts = view.snap.view.hosts
        for row in rows:
            job, accelerator, start_s = request.jobs[row], int(plan.accelerator[row]), float(plan.start_s[row])
            self._placed[job.index] = changed(
                _unplaced(job),
                host=hosts[int(request.problem.responder[accelerator])],
                slot=request.slots[accelerator],
                start_s=start_s,
                end_s=start_s + planned_s(request, plan, row),
            )

    def _explain(self, shard: str, unplaced: Sequence[Job]) -> None:
        """Record why jobs would wait for a place, and whether other pending jobs compete for the same slots."""
        context = self._context
        with context.reading(shard) as tx:
            functions = {job.function for job in unplaced}
            detail = batch_detail(tx, self._batch, functions, context.catalogue, context.now_s)
            wanted = {function for batch in tx.pending_batches().values() for function in batch.functions}
        if unplaced and not self._is_planned:
            self._reasons.append(f"policy {self._batch.policy} plans nothing: each job gets a place when one is free")
            self._expected_at += [] if detail.expected_at is None else [detail.expected_at]
        elif detail.expected_at is None and detail.pending_reason:
            self._reasons.append(detail.pending_reason)
        if self._batch.withheld:
            self._reasons.append(f"{self._batch.withheld}; the plan ignores this")
        if wanted & {job.function for job in self._jobs}:
            self._reasons.append("other jobs wait for the same slots, and may be planned first")


def _unplaced(job: Job) -> PlannedJob:
    return PlannedJob(**shared(job, PlannedJob))


# ---- Outlook of stored batches


def late_s(batch: Batch, ends_at: float | None) -> float | None:
    """Return the seconds by which a batch that ends at `ends_at` (None = unknown) misses its deadline; None if none."""
    if batch.deadline_at is None or ends_at is None or ends_at <= batch.deadline_at:
        return None
    return ends_at - batch.deadline_at


def batch_detail(
    tx: Transaction, batch: Batch, functions: Collection[str], catalogue: Catalogue, now_s: float
) -> BatchDetail:
    """Return a batch with its pending reason, expected start and end, and lateness.

    `functions` are the functions of its pending jobs.  A job is expected to begin when the first slot that its function
    fits has finished the jobs planned there; the policy may decide otherwise.
    """
    reason, expected_at = waiting(tx, batch, functions, catalogue, now_s)
    ends_at = tx.planned_end(batch.uuid)
    last_s = batch.ended_at if batch.state in ENDED_BATCHES else max(now_s, ends_at or now_s)
    return BatchDetail(
        batch=batch, pending_reason=reason, expected_at=expected_at, ends_at=ends_at, late_s=late_s(batch, last_s)
    )


def waiting(
    tx: Transaction, batch: Batch, functions: Collection[str], catalogue: Catalogue, now_s: float
) -> tuple[str, float | None]:
    """Return why the pending jobs of a batch wait, and when the first is expected to begin (None = unknown)."""
    if not functions:
        return "", None
    if batch.withheld:
        return batch.withheld, None
    foreign = held_by_others(tx.leases())
    hosts = {host.name: host for host in tx.hosts()}
    slots = [slot for slot in tx.slots() if usable(slot, hosts[slot.host], foreign)]
    free_at = {backlog.slot: max(backlog.free_at, now_s) for backlog in tx.backlogs()}
    begins_at = {
        name: min(
            (free_at.get(slot.name, now_s) for slot in slots if catalogue.fits(name, slot.board, slot.kind)),
            default=None,
        )
        for name in sorted(functions & catalogue.functions.keys())
    }
    placeable = [at for at in begins_at.values() if at is not None]
    without = [name for name in sorted(functions) if begins_at.get(name) is None]
    if without:
        reason = f"no slot in service can hold {', '.join(without)}"
    elif min(placeable) > now_s:
        reason = f"all slots that can hold {' or '.join(begins_at)} have work"
    else:
        reason = ABOUT_TO_BE_PLANNED
    return reason, min(placeable, default=None)
