"""What becomes of a batch: of one that is stored why it waits; of one that is not its plan, by the rules that plan."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import numpy as np

from fpga_pool.core.types import BatchPlan
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.lifecycle.batch import BATCH, BatchPlanned
from fpga_pool.model.messages.requests import BatchDetail, PlannedBatch, PlannedJob
from fpga_pool.model.objects.pool import ENDED_BATCHES, Batch, Job
from fpga_pool.model.rules.batch.family import BatchView, NewPlan
from fpga_pool.model.rules.batch.placing import PlanRequest, held_by_others, planned_s, usable
from fpga_pool.model.rules.batch.planning import promise
from fpga_pool.model.rules.batch.replanning import promise_among_others
from fpga_pool.model.rules.shared.families import PoolPolicies, new_families
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import PendingBatch, Transaction
from fpga_pool.model.values import changed, shared

#: Begins a transaction that reads a shard, given by its name.
Reading = Callable[[str], AbstractContextManager[Transaction]]

#: Why work waits that nothing keeps from a place.
ABOUT_TO_BE_PLANNED = "it is about to be planned"


class _Supposed:
    """A shard that is read as it is, but for the work that waits: one batch, and no other."""

    def __init__(self, tx: Transaction, batch: Batch, jobs: Sequence[Job]) -> None:
        self._tx, self._batch, self._jobs = tx, batch, jobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def pending_batches(self) -> Mapping[str, PendingBatch]:
        pending = PendingBatch(
            created_at=self._batch.created_at,
            policy=self._batch.policy,
            functions=frozenset(job.function for job in self._jobs),
            jobs=len(self._jobs),
            largest_input_bytes=max(job.input_bytes for job in self._jobs),
        )
        return {self._batch.uuid: pending}

    def batch(self, uuid: str) -> Batch:
        return self._batch if uuid == self._batch.uuid else self._tx.batch(uuid)

    def pending_jobs(self, batches: Collection[str]) -> Sequence[Job]:
        return self._jobs


class DryRun:
    """Plans one batch that is not stored; `run` is called once.

    Parameters
    ----------
    batch, jobs
        As `admission.admit_batch` returns them.
    reading
        Begins transactions; none is open while a policy decides.
    catalogue, settings, policies
        As of the families of a shard.
    now_s
        The present, UTC seconds.
    rng
        Random generator of the policies.

    """

    def __init__(
        self,
        batch: Batch,
        jobs: Sequence[Job],
        *,
        reading: Reading,
        catalogue: Catalogue,
        settings: PoolSettings,
        policies: PoolPolicies,
        now_s: float,
        rng: np.random.Generator,
    ) -> None:
        self._batch, self._jobs = batch, jobs
        self._reading, self._now_s, self._rng = reading, now_s, rng
        self._catalogue, self._settings, self._policies = catalogue, settings, policies
        self._is_planned = not policies.online.is_online(batch.policy)
        #: By index, for those that would get a place.
        self._placed: dict[int, PlannedJob] = {}
        #: Why others would wait, and until when.
        self._reasons: list[str] = []
        self._expected_at: list[float] = []

    def run(self) -> PlannedBatch:
        """Return what would be planned for the jobs of each shard; the batch ends with the last part."""
        by_shard: defaultdict[str, list[Job]] = defaultdict(list)
        for job in self._jobs:
            by_shard[job.shard].append(job)
        planned = self._batch
        for shard, jobs in sorted(by_shard.items()):
            promised = self._plan(shard, jobs) if self._is_planned else None
            if promised is not None:
                planned, _ = BATCH.transition(planned, promised, self._now_s)
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
        """Return what the plan of a shard's part would promise; None = there would be none."""

        @contextmanager
        def reading() -> Iterator[Transaction]:
            with self._reading(shard) as tx:
                yield cast("Transaction", _Supposed(tx, self._batch, jobs))

        decided = Cycle(
            new_families(self._catalogue, self._settings, self._policies).batches,
            reading=reading,
            transactions=reading,
            dispatch=lambda: None,
            clock=lambda: self._now_s,
            timer=lambda: self._now_s,
            rng=self._rng,
        ).dry_run()
        if decided is None:
            return None
        look, decision = decided
        if decision.wanted is None:
            self._reasons += [failure.message for failure in decision.failures]
            return None
        if isinstance(decision.wanted, NewPlan):
            request, plan = decision.wanted.request, decision.wanted.plan
            rows = np.arange(len(request.jobs))
            self._place(look.view, request, plan, rows.tolist())
            return promise(request.problem, plan, rows, self._now_s + look.view.snap.lead_s, {})
        asked, found = decision.wanted.asked, decision.wanted.found
        self._place(look.view, asked.request, found.plan, asked.pending.tolist())
        return promise_among_others(asked, found, asked.pending, self._now_s + self._settings.dispatch_lead_s)

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
        """Note why jobs would wait for a place, and whether others wait already for those of the rest."""
        with self._reading(shard) as tx:
            functions = {job.function for job in unplaced}
            detail = batch_detail(tx, self._batch, functions, self._catalogue, self._now_s)
            waiting = {function for batch in tx.pending_batches().values() for function in batch.functions}
        if unplaced and not self._is_planned:
            self._reasons.append(f"policy {self._batch.policy} plans nothing: each job gets a place when one is free")
            self._expected_at += [] if detail.expected_at is None else [detail.expected_at]
        elif detail.expected_at is None and detail.pending_reason:
            self._reasons.append(detail.pending_reason)
        if self._batch.withheld:
            self._reasons.append(f"{self._batch.withheld}: planned as if it was not")
        if waiting & {job.function for job in self._jobs}:
            self._reasons.append("other jobs wait for the same slots, and may be planned first")


def _unplaced(job: Job) -> PlannedJob:
    return PlannedJob(
        index=job.index,
        name=job.name,
        function=job.function,
        requester=job.requester,
        input_bytes=job.input_bytes,
    )


# ---- What can be said of a batch that is stored


def late_s(batch: Batch, ends_at: float | None) -> float | None:
    """Return by how much a batch that ends then misses its deadline; None = it does not, or has none."""
    if batch.deadline_at is None or ends_at is None or ends_at <= batch.deadline_at:
        return None
    return ends_at - batch.deadline_at


def batch_detail(
    tx: Transaction, batch: Batch, functions: Collection[str], catalogue: Catalogue, now_s: float
) -> BatchDetail:
    """Return a batch with its pending reason, expected start and end, and how late it is.

    `functions` are those of its jobs in state PENDING.  A job can begin when one of the slots that its function fits is
    free of the jobs that are planned there; a policy may know better.
    """
    reason, expected_at = _waiting(tx, batch, functions, catalogue, now_s)
    ends_at = tx.planned_end(batch.uuid)
    last_s = batch.ended_at if batch.state in ENDED_BATCHES else max(now_s, ends_at or now_s)
    return BatchDetail(
        batch=batch, pending_reason=reason, expected_at=expected_at, ends_at=ends_at, late_s=late_s(batch, last_s)
    )


def _waiting(
    tx: Transaction, batch: Batch, functions: Collection[str], catalogue: Catalogue, now_s: float
) -> tuple[str, float | None]:
    """Return why jobs of a batch wait, and when the first of them is expected to begin."""
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
