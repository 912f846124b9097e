"""The scheduler's side of its RPC interface (`rpc.scheduler_api`)."""

import logging
import uuid
from dataclasses import replace
from typing import Any

from fpga_pool.conf.policies import policy_names
from fpga_pool.dataplane.tokens import TransferGrant, sign
from fpga_pool.model.encoding import REPORTS, from_plain, to_plain
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound
from fpga_pool.model.exchange import FunctionInfo, Ticket, TicketRequest
from fpga_pool.model.messages import Heartbeat, JobFailed, JobReleased, Report, SlotChanged
from fpga_pool.model.objects import JobState, SlotState
from fpga_pool.model.pool.admission import BatchRequest, cancel_batch, create_batch, owned_batch
from fpga_pool.model.pool.operations import drain_slot, resume_slot
from fpga_pool.model.pool.reconcile import apply_heartbeat
from fpga_pool.model.pool.reports import apply_reports
from fpga_pool.model.transaction import Transaction
from fpga_pool.rpc.transport import VERSION_1, answers, read
from fpga_pool.services.scheduler.service import SchedulerService, log_repairs

LOG = logging.getLogger(__name__)

Plain = dict[str, Any]

#: States in which a ticket of each purpose makes sense.
TICKET_STATES = {
    "send": frozenset({JobState.WAITING_INPUT}),
    "fetch": frozenset({JobState.STAGED, JobState.RUNNING, JobState.RESULT_HELD}),
}


class SchedulerEndpoint:
    """Answers tenants, operators and agents; every change is committed before it is answered."""

    target = VERSION_1

    def __init__(self, service: SchedulerService) -> None:
        self._service = service

    # Tenants

    @answers
    def create_batch(self, context: Plain, request: Plain) -> Plain:
        """See SchedulerAPI."""
        wanted = read(BatchRequest, request)
        names = policy_names("batch")
        if wanted.policy and wanted.policy not in names:
            raise InvalidInput(f"policy: no batch policy {wanted.policy!r}; known: {', '.join(names)}")
        service = self._service
        wanted = replace(wanted, policy=wanted.policy or service.settings.default_policy)
        with service.transaction() as tx:
            batch = create_batch(tx, wanted, service.catalogue, service.settings.pool, service.clock())
        LOG.info("batch %s of project %s: %d jobs", batch.uuid, batch.project_id, batch.jobs)
        service.work_arrived()
        return to_plain(batch)

    @answers
    def batches(self, context: Plain, project_id: str, limit: int, marker: str | None) -> list[Plain]:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            return [to_plain(batch) for batch in tx.batches(project_id, limit=limit, marker=marker)]

    @answers
    def batch(self, context: Plain, project_id: str, uuid: str) -> Plain:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            return to_plain(owned_batch(tx, uuid, project_id))

    @answers
    def batch_jobs(self, context: Plain, project_id: str, uuid: str) -> list[Plain]:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            owned_batch(tx, uuid, project_id)
            # Without their stories, which nobody reads by the thousand.
            return [to_plain(replace(job, story=())) for job in tx.batch_jobs(uuid)]

    @answers
    def cancel_batch(self, context: Plain, project_id: str, uuid: str) -> Plain:
        """See SchedulerAPI."""
        with self._service.transaction() as tx:
            batch = cancel_batch(tx, uuid, project_id, self._service.clock())
        LOG.info("batch %s: cancellation requested", uuid)
        self._service.work_arrived()
        return to_plain(batch)

    @answers
    def tickets(self, context: Plain, project_id: str, batch_uuid: str, requests: list[Plain]) -> list[Plain]:
        """See SchedulerAPI."""
        wanted = [read(TicketRequest, item) for item in requests]
        with self._service.transaction() as tx:
            owned_batch(tx, batch_uuid, project_id)
            return [to_plain(self._ticket(tx, batch_uuid, request)) for request in wanted]

    def _ticket(self, tx: Transaction, batch_uuid: str, request: TicketRequest) -> Ticket:
        job = tx.job(request.job)
        if job.batch_uuid != batch_uuid:
            raise NotFound(f"no job {request.job} in batch {batch_uuid}")
        states = TICKET_STATES.get(request.purpose)
        if states is None:
            raise InvalidInput(f"purpose: {request.purpose!r} is neither send nor fetch")
        if job.state not in states or job.cancel_requested:
            raise Conflict(f"job {job.uuid} is {job.state}: nothing to {request.purpose} now")
        if request.purpose == "send":
            tx.save(replace(job, flow=f"{request.source_address}:{request.source_port}"))
        host = tx.host(job.host)
        now_s = self._service.clock()
        grant = TransferGrant(
            job=job.uuid,
            attempt=job.attempt,
            project_id=job.project_id,
            host=job.host,
            purpose=request.purpose,  # type: ignore[arg-type]  # checked above
            input_bytes=job.input_bytes,
            token_id=str(uuid.uuid4()),
            deadline_s=now_s + self._service.settings.token_lifetime_s,
        )
        return Ticket(
            job=job.uuid,
            purpose=request.purpose,
            address=host.data_address,
            port=host.data_port,
            token=sign(grant, self._service.token_key),
            input_bytes=job.input_bytes,
            transfer=job.transfer,
            elapsed_s=now_s - (job.dispatched_at or now_s),
        )

    # Operators

    @answers
    def slots(self, context: Plain) -> list[Plain]:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            return [to_plain(slot) for slot in tx.slots()]

    @answers
    def slot(self, context: Plain, uuid: str) -> Plain:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            return to_plain(tx.slot_by_uuid(uuid))

    @answers
    def drain_slot(self, context: Plain, uuid: str, reason: str) -> Plain:
        """See SchedulerAPI."""
        with self._service.store.reading() as reading:
            name = reading.slot_by_uuid(uuid).name
        with self._service.transaction() as tx:
            slot = drain_slot(tx, name, reason, self._service.clock())
        LOG.info("slot %s: drain requested: %s", name, slot.reason)
        self._service.work_arrived()
        return to_plain(slot)

    @answers
    def resume_slot(self, context: Plain, uuid: str) -> Plain:
        """See SchedulerAPI."""
        with self._service.store.reading() as reading:
            name = reading.slot_by_uuid(uuid).name
        with self._service.transaction() as tx:
            slot = resume_slot(tx, name, self._service.clock())
        LOG.info("slot %s: resumed", name)
        self._service.work_arrived()
        return to_plain(slot)

    @answers
    def hosts(self, context: Plain) -> list[Plain]:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            return [to_plain(host) for host in tx.hosts()]

    @answers
    def functions(self, context: Plain) -> list[Plain]:
        """See SchedulerAPI."""
        catalogue = self._service.catalogue
        with self._service.store.reading() as tx:
            slots = tx.slots()
        return [
            to_plain(
                FunctionInfo(
                    name=name,
                    version=function.version,
                    slot_kinds=function.slot_kinds,
                    io_bps=function.io_bps,
                    preemptible=function.preemptible,
                    speedup=function.speedup,
                    slots=sum(catalogue.fits(name, slot.board, slot.kind) for slot in slots),
                )
            )
            for name, function in sorted(catalogue.functions.items())
        ]

    @answers
    def calibration(self, context: Plain, function: str | None) -> list[Plain]:
        """See SchedulerAPI."""
        return [to_plain(row) for row in self._service.calibrator.report(function)]

    # Agents

    @answers
    def heartbeat(self, context: Plain, heartbeat: Plain) -> None:
        """See SchedulerAPI."""
        heard = read(Heartbeat, heartbeat)
        with self._service.transaction() as tx:
            repairs = apply_heartbeat(tx, heard, self._service.clock())
        log_repairs(repairs)
        if repairs:
            self._service.work_arrived()

    @answers
    def report(self, context: Plain, host: str, reports: list[Plain]) -> None:
        """See SchedulerAPI."""
        told = [from_plain(REPORTS, item) for item in reports]
        with self._service.transaction() as tx:
            void = apply_reports(tx, host, told, self._service.clock())
        for complaint in void:
            LOG.debug("void report of %s: %s", host, complaint)
        if any(map(_makes_work, told)):
            self._service.work_arrived()


def _makes_work(report: Report) -> bool:
    """Say whether jobs may need a place, or an agent a command, after this report."""
    if isinstance(report, SlotChanged):
        return report.state in (SlotState.EMPTY, SlotState.FAULTED)
    return isinstance(report, JobFailed | JobReleased)
