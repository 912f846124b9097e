"""The scheduler's side of its RPC interface (`rpc.scheduler_api`)."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from fpga_pool.model.codec import read
from fpga_pool.model.exceptions import Conflict, HostTaken, InvalidInput, LateMessage, NotFound, QuotaExceeded
from fpga_pool.model.fields import Count, Id, ProjectId
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.messages.agents import Heartbeat, Report
from fpga_pool.model.messages.counters import HostCounters
from fpga_pool.model.messages.requests import (
    SMALL_INPUT_BYTES,
    Calibration,
    FunctionInfo,
    HeartbeatAnswer,
    JobChanges,
    JobDetail,
    Receipt,
    Ticket,
    TicketRequest,
)
from fpga_pool.model.messages.work import BatchRequest
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.pool import Batch, Job, JobState, Lease, Slot
from fpga_pool.model.objects.quotas import ProjectLimits
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.preconditions import Seen
from fpga_pool.model.rules.batch.admission import confirm_results, owned_batch
from fpga_pool.model.rules.instance.observations import ENDED_INSTANCES, Observations, observed
from fpga_pool.model.rules.online.view import slot_benefits
from fpga_pool.model.rules.pipeline.edges import is_intermediate
from fpga_pool.model.rules.pipeline.outlook import job_detail
from fpga_pool.model.rules.shared.admission import owned
from fpga_pool.model.rules.shared.flows import can_shape
from fpga_pool.model.rules.shared.reports import frees_place, makes_work
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import shared
from fpga_pool.rpc.scheduler_api import LONGEST_WAIT_S
from fpga_pool.rpc.transport import TARGET, Context, answers
from fpga_pool.services.scheduler.changes import POLL_S
from fpga_pool.services.scheduler.designs import DesignRequests
from fpga_pool.services.scheduler.dry_runs.requests import DryRunRequests
from fpga_pool.services.scheduler.hardware import HardwareRequests
from fpga_pool.services.scheduler.ownership import log_repairs
from fpga_pool.services.scheduler.requests import TenantRequests
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.transfer.tokens import Purpose, source_of

LOG = logging.getLogger(__name__)

#: States of jobs that have got a place, or no longer need one.
_PLANNED = frozenset(JobState) - {JobState.PENDING}
#: States of jobs in which a ticket of each purpose is possible.
TICKET_STATES = {
    "send": frozenset({JobState.WAITING_INPUT}),
    "fetch": frozenset({JobState.STAGED, JobState.RUNNING, JobState.RESULT_HELD}),
}


class SchedulerEndpoint(DesignRequests, DryRunRequests, HardwareRequests, TenantRequests):
    """Answers requests of tenants, operators and agents; every change is committed before it is answered."""

    target = TARGET

    def __init__(self, service: SchedulerService) -> None:
        self._service = service

    # Tenants

    @answers
    def job(self, context: Context, project_id: str | None, uuid: str) -> JobDetail:
        service = self._service
        with service.store.single_reads() as tx:
            job = owned(tx.job(uuid), project_id, "job")
            if job.state is not JobState.PENDING:  # then nothing else is read
                return JobDetail(job=job, pending_reason="", expected_at=job.expected_at)
        with service.store.reading(job.shard) as tx:
            return job_detail(tx, tx.job(uuid), service.designs.everything(tx), service.clock())

    @answers
    def create_batch(self, context: Context, request: BatchRequest, wait_s: float) -> JobChanges:
        service = self._service
        if wait_s <= 0:
            return JobChanges(batch=self._create_batch(request)[0], jobs=(), seen={}, at=service.clock())
        committed = None
        with service.changes.watching(request.uuid) as watch:
            batch, limits = self._create_batch(request)
            if watch is not None and not (batch.held or batch.waits_for):
                committed = watch.wait(min(LONGEST_WAIT_S, wait_s))
        if committed is None:
            jobs, seen = service.store.changed_jobs(batch.uuid, states=_PLANNED)
        else:
            jobs, seen = committed.in_states(_PLANNED), committed.seen
        tickets = tuple(self._first_tickets(batch.project_id, limits, jobs))
        return JobChanges(batch=batch, jobs=tuple(jobs), seen=seen, at=service.clock(), tickets=tickets)

    def _first_tickets(self, project_id: str, limits: ProjectLimits, jobs: Sequence[Job]) -> list[Ticket]:
        """Return tickets for small inputs that can be sent now; none if the project would have too many tickets."""
        due = [
            job
            for job in jobs
            if job.state is JobState.WAITING_INPUT and job.input_bytes <= SMALL_INPUT_BYTES and not job.cancel_requested
        ]
        try:
            self._service.tickets.count(limits, project_id, len(due))
        except QuotaExceeded:
            return []
        with self._service.store.single_reads(aged=True) as tx:
            return self._tickets(tx, [(job, "send", "") for job in due])

    @answers
    def batch_jobs(
        self,
        context: Context,
        project_id: str | None,
        uuid: str,
        states: Sequence[JobState],
        changed_after: Mapping[str, int] | None,
        wait_s: float,
        with_batch: bool,
    ) -> JobChanges:
        store = self._service.store
        known = self._service.last_committed(uuid)
        if known is not None:
            owned(known.batch, project_id, "batch")
        else:
            with store.single_reads() as tx:
                owned_batch(tx, uuid, project_id)

        def fetch() -> tuple[Sequence[Job], dict[str, int]]:
            return store.changed_jobs(uuid, states=states, changed_after=changed_after)

        batch = None
        if changed_after is None or wait_s <= 0:
            jobs, seen = fetch()
        else:
            jobs, seen, batch = self._wait(uuid, states, changed_after, wait_s, fetch)
        if with_batch and batch is None:
            with store.single_reads() as tx:
                batch = tx.batch(uuid)
        return JobChanges(jobs=tuple(jobs), seen=seen, at=self._service.clock(), batch=batch if with_batch else None)

    def _wait(
        self,
        batch_uuid: str,
        states: Collection[JobState],
        changed_after: Mapping[str, int],
        wait_s: float,
        fetch: Callable[[], tuple[Sequence[Job], dict[str, int]]],
    ) -> tuple[Sequence[Job], dict[str, int], Batch | None]:
        """Wait until jobs have changed, or until the timeout; return the batch, too, if it is known without reading."""
        give_up_s = time.monotonic() + min(wait_s, LONGEST_WAIT_S)
        seen = dict(changed_after)
        with self._service.changes.watching(batch_uuid) as watch:
            committed = self._service.last_committed(batch_uuid)
            while True:
                if committed is None:
                    jobs, seen = fetch()
                elif any(seen.get(name, -1) < at for name, at in committed.seen.items()):
                    jobs, seen = committed.in_states(states), committed.seen
                else:
                    jobs = []  # nothing is newer
                left_s = give_up_s - time.monotonic()
                if jobs or watch is None or left_s <= 0:
                    return jobs, seen, None if committed is None else committed.batch
                committed = watch.wait(min(POLL_S, left_s))

    @answers
    def cancel_batch(self, context: Context, project_id: str | None, uuid: str, seen: Seen = None) -> Batch:
        service = self._service
        with service.store.reading() as reading:
            is_task = owned_batch(reading, uuid, project_id).policy == TASK_POLICY
        if is_task:  # the whole task is changed in one transaction
            self._cancel_task(uuid, project_id, seen_batch=seen)
            return self._owned_batch(project_id, uuid)
        return self._cancel_batch(uuid, project_id, seen)

    @answers
    def tickets(
        self, context: Context, project_id: str, batch_uuid: str, requests: list[TicketRequest]
    ) -> list[Ticket]:
        unified = self._service.unified(project_id)
        with self._service.store.reading() as tx:
            owned_batch(tx, batch_uuid, project_id)
            jobs = tx.job_summaries({request.job for request in requests})
            placed = [_movable(tx, jobs.get(request.job), batch_uuid, request) for request in requests]
            limits = self._service.limits_of(tx, project_id, unified)
            self._service.tickets.count(limits, project_id, len(requests))
            sources = [source_of(request.source_address, request.source_port) for request in requests]
            purposes: list[Any] = [request.purpose for request in requests]  # checked
            return self._tickets(tx, list(zip(placed, purposes, sources, strict=True)))

    @answers
    def confirm_results(self, context: Context, project_id: str, batch_uuid: str, receipts: list[Receipt]) -> Batch:
        service = self._service
        with service.store.reading() as tx:
            owned_batch(tx, batch_uuid, project_id)
            jobs = tx.job_summaries({receipt.job for receipt in receipts})
        by_shard: dict[str, list[Receipt]] = {}
        for receipt in receipts:
            job = _of_batch(jobs.get(receipt.job), receipt.job, batch_uuid)
            if job.state is JobState.RESULT_HELD:
                by_shard.setdefault(job.shard, []).append(receipt)
        for shard, own in sorted(by_shard.items()):
            service.writer(shard).run(partial(confirm_results, receipts=own, now_s=service.clock()))
        return self._owned_batch(project_id, batch_uuid)

    def _tickets(self, tx: Transaction, wishes: Sequence[tuple[Job, Purpose, str]]) -> list[Ticket]:
        """Return tickets, each for a job, a purpose and a source; all of them share one signature."""
        shaped = [purpose == "send" and can_shape(tx, job) for job, purpose, _ in wishes]
        tokens = self._service.tickets.tokens(
            (job, purpose, source if held else "") for (job, purpose, source), held in zip(wishes, shaped, strict=True)
        )
        return [
            self._ticket(tx, job, purpose, token, shaped=held)
            for (job, purpose, _), token, held in zip(wishes, tokens, shaped, strict=True)
        ]

    def _ticket(self, tx: Transaction, job: Job, purpose: Purpose, token: str, *, shaped: bool) -> Ticket:
        host = tx.host(job.host)
        now_s = self._service.clock()
        return Ticket(
            job=job.uuid,
            attempt=job.attempt,
            purpose=purpose,
            address=host.data_address,
            port=host.data_port,
            token=token,
            input_bytes=job.input_bytes,
            transfer=job.transfer,
            elapsed_s=now_s - (job.dispatched_at or now_s),
            shaped=shaped,
        )

    # Operators

    @answers
    def snapshot(self, context: Context, seen: Mapping[str, int] | None) -> dict[str, Any]:
        return self._service.snapshots.changed_after(seen).to_plain()

    @answers
    def functions(self, context: Context, project_id: str) -> list[FunctionInfo]:
        with self._service.store.single_reads() as tx:
            slots, catalogue = tx.slot_counts(), self._service.designs.visible(tx, project_id)
        return [
            FunctionInfo(
                **shared(function, FunctionInfo),
                speedup=function.speedup,
                slots=sum(count for (board, kind), count in slots.items() if catalogue.fits(name, board, kind)),
            )
            for name, function in sorted(catalogue.functions.items())
        ]

    @answers
    def benefits(self, context: Context) -> dict[str, float]:
        with self._service.store.reading() as tx:
            return slot_benefits(tx, self._service.designs.everything(tx))

    @answers
    def calibration(self, context: Context, function: str | None) -> Sequence[Calibration]:
        return self._service.calibrator.report(function)

    @answers
    def observations(self, context: Context) -> Observations:
        with self._service.store.reading() as tx:
            ended, models = tx.ended_instances(ENDED_INSTANCES), tx.time_models()
            designs = tx.designs([DesignState.APPROVED])
        return observed(ended, models, self._service.calibrator.slowdown, designs)

    # Schedulers

    @answers
    def describe(self, context: Context) -> dict[str, Any]:
        service = self._service
        return {
            "name": service.settings.name,
            "shards": service.ownership.shards(),
            "refused": service.refusals.counts(),
        }

    @answers
    def health(self, context: Context) -> str:
        self._service.store.check_schema()
        return self._service.settings.name

    @answers
    def wake(self, context: Context) -> None:
        self._service.ownership.wake()

    # Agents

    @answers
    def enroll(self, context: Context, host: str, key: str, proof: str) -> bool:
        return self._service.keys.enroll(host, key, proof)

    @answers
    def claim(self, context: Context, host: str, agent_id: str) -> None:
        with self._counting(host):
            self._service.heartbeat_intake.claim(host, agent_id)

    @answers
    def heartbeat(self, context: Context, heartbeat: dict[str, Any]) -> HeartbeatAnswer:
        with self._counting(heartbeat.get("host")), self._service.hearing_hosts():
            repairs = self._service.heartbeat_intake.heartbeat(read(Heartbeat, heartbeat, "heartbeat"))
        log_repairs(repairs)
        if repairs:
            self._service.work_arrived()
        # After repairs, the host is compared once more, as soon as possible.
        due_s, full_due_s = (0.0, 0.0) if repairs else self._service.heartbeats_due_s()
        return HeartbeatAnswer(at=self._service.clock(), due_s=due_s, full_due_s=full_due_s)

    @answers
    def report(self, context: Context, host: str, agent_id: str, reports: list[Any]) -> None:
        with self._counting(host):
            numbered: list[tuple[int, Report]] = read(list[tuple[Count, Report]], reports, "reports")
            void = self._service.heartbeat_intake.report(host, agent_id, numbered)
        for complaint in void:
            LOG.debug("ignored report of %s: %s", host, complaint)
        if any(makes_work(report) for _, report in numbered):
            self._service.work_arrived()
        elif any(frees_place(report) for _, report in numbered):
            self._service.ownership.place_freed()

    @answers
    def claim_slots(
        self,
        context: Context,
        host: str,
        agent_id: str,
        instance: Id,
        project_id: ProjectId,
        wanted: AcceleratorRequest,
    ) -> Sequence[Slot]:
        slots = self._service.instances.claim(host, agent_id, instance, project_id, wanted)
        self._service.work_arrived()
        return slots

    @answers
    def release_slots(self, context: Context, host: str, agent_id: str, leases: Mapping[str, int]) -> None:
        self._service.instances.release(host, agent_id, leases)
        self._service.work_arrived()

    @answers
    def instance_leases(self, context: Context, host: str) -> dict[str, list[Lease]]:
        return self._service.instances.leases(host)

    @contextmanager
    def _counting(self, host: object) -> Iterator[None]:
        """Count refused messages sent in the name of a host."""
        try:
            yield
        except (InvalidInput, HostTaken, LateMessage):
            self._service.heartbeat_intake.refused(str(host))
            raise


class LifeSignEndpoint:
    """Records the life signs of agents."""

    target = TARGET

    def __init__(self, service: SchedulerService) -> None:
        self._service = service

    @answers
    def alive(
        self, context: Context, host: str, agent_id: str, boot: int, beat: int, counters: HostCounters | None
    ) -> None:
        self._service.heartbeat_intake.alive(host, agent_id, boot, beat, counters)


def _movable(tx: Transaction, job: Job | None, batch_uuid: str, request: TicketRequest) -> Job:
    """Return the job of a request for a ticket, if its bytes can be moved now."""
    job = _of_batch(job, request.job, batch_uuid)
    states = TICKET_STATES.get(request.purpose)
    if states is None:
        raise InvalidInput(f"purpose: expected send or fetch, found {request.purpose!r}")
    if job.state not in states or job.cancel_requested:
        raise Conflict(f"job {job.uuid} is {job.state}: there is nothing to {request.purpose} now")
    if request.purpose == "send" and job.predecessors:
        raise Conflict(f"job {job.uuid}: its input is the results of other jobs, which no client sends")
    if request.purpose == "fetch" and is_intermediate(tx, job):
        raise Conflict(f"job {job.uuid}: its result is the input of other jobs, and is not for clients")
    return job


def _of_batch(job: Job | None, uuid: str, batch_uuid: str) -> Job:
    if job is None or job.batch_uuid != batch_uuid:
        raise NotFound(f"no job {uuid} in batch {batch_uuid}")
    return job
