"""Requests of tenants for work, and about quotas and usage: a part of `services.scheduler.endpoint`."""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from fpga_pool.conf.policies import is_proving, policy_names
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.fields import ProjectId
from fpga_pool.model.messages.requests import (
    BatchChange,
    BatchDetail,
    GangDetail,
    JobDetail,
    Page,
    PipelineDetail,
    PoolCounts,
    SourceTicket,
    TaskDetail,
    WorkCount,
)
from fpga_pool.model.messages.usage import Usage, UsagePage
from fpga_pool.model.messages.work import BatchRequest, GangRequest, PipelineRequest, TaskRequest
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import PIPELINE_POLICY, Batch, Job, JobState
from fpga_pool.model.objects.progress import Flow, flow_of
from fpga_pool.model.objects.quotas import ProjectLimits, Quota, QuotaLimits, Resource
from fpga_pool.model.objects.tasks import TASK_POLICY, Task
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.batch.admission import (
    cancel_batch,
    cancel_jobs,
    change_batch,
    create_batch,
    hold_jobs,
    owned_batch,
)
from fpga_pool.model.rules.batch.dry_run import batch_detail
from fpga_pool.model.rules.gang.admission import cancel_gang, create_gang, owned_gang
from fpga_pool.model.rules.gang.decisions import gang_detail
from fpga_pool.model.rules.pipeline.admission import create_pipeline, owned_pipeline
from fpga_pool.model.rules.pipeline.edges import input_sources
from fpga_pool.model.rules.pipeline.outlook import job_details, pipeline_detail, pipeline_outlook
from fpga_pool.model.rules.shared.admission import quota_of
from fpga_pool.model.rules.shared.reports import require_agent
from fpga_pool.model.rules.task.admission import cancel_task, create_task, owned_task
from fpga_pool.model.rules.task.decisions import task_detail
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.rpc.tracing import causing_request
from fpga_pool.rpc.transport import Context, answers
from fpga_pool.services.scheduler.metrics import pool_counts, work_counts
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.store.quotas import DAY_S, quota, set_limits, unset_limits, usage
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Longest period of one usage request, because the amount of data that a request reads is limited.
LONGEST_PERIOD_S = 31 * DAY_S


class TenantRequests:
    """Answers requests about work, quotas and usage; every change is committed before it is answered."""

    _service: SchedulerService

    def _page(self, cls: type[T], page: Page) -> list[T]:
        with self._service.store.single_reads() as tx:
            return tx.page(cls, page)

    def _shard_of(
        self, owned: Callable[[Transaction, str, str | None], Gang | Task], uuid: str, project_id: str | None
    ) -> str:
        with self._service.store.reading() as tx:
            return owned(tx, uuid, project_id).shard

    def _change_in_shards(
        self,
        uuid: str,
        project_id: str | None,
        change: Callable[[Transaction], object],
        follow: Callable[[Transaction], None],
    ) -> Batch:
        """Change a batch, and then its jobs in each of its shards with `follow`; return the changed batch."""
        service = self._service
        with service.store.admission() as tx:
            tx.cause = causing_request()
            change(tx)
            shards = {job.shard for job in tx.batch_jobs(uuid)}
        for shard in sorted(shards):
            service.writer(shard).run(follow)
        service.work_arrived()
        return self._owned_batch(project_id, uuid)

    def _owned_batch(self, project_id: str | None, uuid: str) -> Batch:
        with self._service.store.reading() as tx:
            return owned_batch(tx, uuid, project_id)

    # Batches

    @answers
    def batches(self, context: Context, page: Page) -> list[Batch]:
        return self._page(Batch, page)

    @answers
    def batch_detail(self, context: Context, project_id: str | None, uuid: str) -> BatchDetail:
        service = self._service
        with service.store.single_reads() as tx:
            batch = owned_batch(tx, uuid, project_id)
            if batch.policy not in (PIPELINE_POLICY, TASK_POLICY):
                functions = tx.pending_functions(uuid)
                if batch.withheld or not functions:  # then no consistent snapshot is needed
                    return batch_detail(tx, batch, functions, service.catalogue, service.clock())
        with service.store.reading() as tx:
            batch = owned_batch(tx, uuid, project_id)
            known = service.designs.visible(tx, batch.project_id), service.clock()
            if batch.policy == PIPELINE_POLICY:
                return pipeline_outlook(tx, batch, tx.batch_jobs(uuid), *known)
            if batch.policy != TASK_POLICY:
                return batch_detail(tx, batch, tx.pending_functions(uuid), *known)
        task = self._task_detail(project_id, uuid)
        return BatchDetail(batch=batch, pending_reason=task.pending_reason, expected_at=task.expected_at)

    @answers
    def jobs(self, context: Context, page: Page) -> list[JobDetail]:
        service, waiting = self._service, defaultdict[str, list[Job]](list)
        with service.store.single_reads() as reads:
            found = reads.page(Job, page)
        for job in found:
            if job.state is JobState.PENDING:
                waiting[job.shard].append(job)
        details: dict[str, JobDetail] = {}
        for shard, jobs in waiting.items():
            with service.store.reading(shard) as tx:
                known = job_details(tx, jobs, service.designs.everything(tx), service.clock())
            details |= {one.job.uuid: one for one in known}
        return [
            details.get(job.uuid) or JobDetail(job=job, pending_reason="", expected_at=job.expected_at) for job in found
        ]

    def _create_batch(self, request: BatchRequest) -> tuple[Batch, ProjectLimits]:
        """Store a batch; return it and the limits of its project."""
        service, wanted = self._service, self._with_policy(request)

        def create(tx: SqlTransaction) -> Batch:
            catalogue = service.designs.visible(tx, wanted.project_id, {job.function for job in wanted.jobs})
            return create_batch(tx, wanted, catalogue, service.settings.pool, service.clock())

        batch, limits = service.admit(Batch, wanted, create)
        LOG.info("batch %s of project %s: %d jobs", batch.uuid, batch.project_id, batch.jobs)
        if not batch.withheld:
            service.work_arrived("online" if service.policies.online.is_online(batch.policy) else "batch")
        return batch, limits

    @answers
    def change_batch(
        self, context: Context, project_id: str, uuid: str, change: BatchChange, seen: Seen = None
    ) -> Batch:
        now_s = self._service.clock
        batch = self._change_in_shards(
            *(uuid, project_id),
            lambda tx: change_batch(tx, uuid, project_id, change, now_s(), seen),
            lambda tx: hold_jobs(tx, uuid, now_s()),
        )
        LOG.info("batch %s: changed: %s", uuid, change)
        return batch

    def _with_policy(self, request: BatchRequest) -> BatchRequest:
        """Return a request with the effective policy; raise InvalidInput if that policy cannot be used."""
        settings, policy = self._service.settings, request.policy
        names = [*policy_names("batch"), settings.online_policy]
        if policy and policy not in names:
            raise InvalidInput(f"policy: no batch policy {policy!r}; known: {', '.join(names)}")
        if policy != settings.default_policy and is_proving("batch", policy):
            raise InvalidInput(
                f"policy: {policy!r} blocks all other planning until it has proven its plan; it is only allowed "
                "in simulations and as the pool's default_policy"
            )
        self._service.policies.check_groups(request)
        return changed(request, policy=policy or settings.default_policy)

    # Gangs

    @answers
    def create_gang(self, context: Context, request: GangRequest) -> Gang:
        service = self._service
        gang, _ = service.admit(
            Gang, request, lambda tx: create_gang(tx, request, service.clock(), service.gangs.last_runs)
        )
        LOG.info("gang %s of project %s: %d processes", gang.uuid, gang.project_id, gang.processes)
        service.work_arrived("gang")
        return gang

    @answers
    def gangs(self, context: Context, page: Page) -> list[Gang]:
        return self._page(Gang, page)

    @answers
    def gang(self, context: Context, project_id: str | None, uuid: str) -> GangDetail:
        service = self._service
        with service.store.reading(self._shard_of(owned_gang, uuid, project_id)) as tx:
            return gang_detail(tx, uuid, service.settings.pool, service.gangs, service.clock())

    @answers
    def cancel_gang(self, context: Context, project_id: str | None, uuid: str, seen: Seen = None) -> Gang:
        service = self._service
        writer = service.writer(self._shard_of(owned_gang, uuid, project_id))
        gang = writer.run(lambda tx: cancel_gang(tx, uuid, project_id, service.clock(), seen))
        LOG.info("gang %s: cancellation requested", uuid)
        service.work_arrived()
        return gang

    # Pipelines, and the inputs that agents gather for subtasks

    @answers
    def create_pipeline(self, context: Context, request: PipelineRequest) -> Batch:
        service = self._service

        def create(tx: SqlTransaction) -> Batch:
            catalogue = service.designs.visible(tx, request.project_id, {one.function for one in request.subtasks})
            return create_pipeline(tx, request, catalogue, service.settings.pool, service.clock())

        batch, _ = service.admit(Batch, request, create)
        LOG.info("pipeline %s of project %s: %d subtasks", batch.uuid, batch.project_id, batch.jobs)
        service.work_arrived("pipeline")
        return batch

    @answers
    def pipelines(self, context: Context, page: Page) -> list[Batch]:
        return self._page(Batch, changed(page, where=page.where | {"policy": (PIPELINE_POLICY,)}))

    @answers
    def pipeline(self, context: Context, project_id: str | None, uuid: str) -> PipelineDetail:
        service = self._service
        with service.store.reading() as tx:
            batch = owned_pipeline(tx, uuid, project_id)
            return pipeline_detail(tx, batch, service.designs.visible(tx, batch.project_id), service.clock())

    @answers
    def cancel_pipeline(self, context: Context, project_id: str | None, uuid: str, seen: Seen = None) -> Batch:
        with self._service.store.reading() as tx:
            owned_pipeline(tx, uuid, project_id)
        return self._cancel_batch(uuid, project_id, seen)

    def _cancel_batch(self, uuid: str, project_id: str | None, seen: Seen) -> Batch:
        """Request the cancellation of a batch in each of its shards."""
        now_s = self._service.clock
        cancelled = self._change_in_shards(
            *(uuid, project_id),
            lambda tx: cancel_batch(tx, uuid, project_id, now_s(), seen),
            lambda tx: cancel_jobs(tx, uuid, now_s()),
        )
        LOG.info("batch %s: cancellation requested", uuid)
        return cancelled

    @answers
    def source_tickets(self, context: Context, host: str, agent_id: str, job: str, attempt: int) -> list[SourceTicket]:
        service = self._service
        with service.store.reading() as tx:
            require_agent(tx.host(host), agent_id)
            sources = input_sources(tx, job, host, attempt)
            holders = {source.host: tx.host(source.host) for source in sources}
        tokens = service.tickets.tokens((source, "copy", "") for source in sources)
        return [
            SourceTicket(
                job=source.uuid,
                host=source.host,
                address=holders[source.host].data_address,
                port=holders[source.host].data_port,
                tls=holders[source.host].data_tls,
                token=token,
            )
            for source, token in zip(sources, tokens, strict=True)
        ]

    # Tasks

    @answers
    def create_task(self, context: Context, request: TaskRequest) -> Task:
        service = self._service

        def create(tx: SqlTransaction) -> Task:
            catalogue = service.designs.visible(tx, request.project_id, {request.function})
            return create_task(tx, request, catalogue, service.settings.pool, service.clock())

        task, _ = service.admit(Task, request, create)
        LOG.info("task %s of project %s: %d slots, %s", task.uuid, task.project_id, task.slots, task.topology)
        service.work_arrived("task")
        return task

    @answers
    def tasks(self, context: Context, page: Page) -> list[Task]:
        return self._page(Task, page)

    @answers
    def task(self, context: Context, project_id: str | None, uuid: str) -> TaskDetail:
        return self._task_detail(project_id, uuid)

    def _task_detail(self, project_id: str | None, uuid: str) -> TaskDetail:
        service = self._service
        with service.store.reading(self._shard_of(owned_task, uuid, project_id)) as tx:
            return task_detail(tx, uuid, service.designs.everything(tx), service.clock())

    @answers
    def cancel_task(self, context: Context, project_id: str | None, uuid: str, seen: Seen = None) -> Task:
        return self._cancel_task(uuid, project_id, seen)

    def _cancel_task(self, uuid: str, project_id: str | None, seen: Seen = None, seen_batch: Seen = None) -> Task:
        service = self._service

        def cancel(tx: Transaction) -> Task:
            require_seen(tx.batch(uuid), seen_batch)
            return cancel_task(tx, uuid, project_id, service.clock(), seen)

        task = service.writer(self._shard_of(owned_task, uuid, project_id)).run(cancel)
        LOG.info("task %s: cancellation requested", uuid)
        service.work_arrived()
        return task

    # Quotas, usage, open work and flows

    @answers
    def quota(self, context: Context, project_id: ProjectId) -> Quota:
        service = self._service
        own, used = quota(service.store, project_id)
        used = {**used, Resource.TICKETS: service.tickets.valid(project_id)}
        return quota_of(project_id, service.unified(project_id) or service.limits(own), used)

    @answers
    def set_quota(self, context: Context, project_id: ProjectId, limits: QuotaLimits, seen: Seen = None) -> Quota:
        self._require_own_limits()
        set_limits(self._service.store, project_id, limits, self._service.clock(), causing_request(), seen)
        LOG.info("quota of project %s: changed", project_id)
        return self.quota(context, project_id=project_id)

    @answers
    def unset_quota(self, context: Context, project_id: ProjectId, seen: Seen = None) -> Quota:
        self._require_own_limits()
        unset_limits(self._service.store, project_id, self._service.clock(), causing_request(), seen)
        LOG.info("quota of project %s: the default one from now on", project_id)
        return self.quota(context, project_id=project_id)

    def _require_own_limits(self) -> None:
        if self._service.unified_limits is not None:
            raise Conflict("quotas are limits of Keystone here: change them with `openstack limit`")

    @answers
    def usage(self, context: Context, page: UsagePage) -> list[Usage]:
        service = self._service
        now_s = service.clock()
        end_at = now_s if page.end_at is None else page.end_at
        begin_at = max(end_at - DAY_S, 0.0) if page.begin_at is None else page.begin_at
        if not 0 < end_at - begin_at <= LONGEST_PERIOD_S:
            days = LONGEST_PERIOD_S / DAY_S
            raise InvalidInput(f"start: expected a point in time before the end, by at most {days:.0f} days")
        with service.store.reading() as tx:
            functions = service.designs.everything(tx).functions
        speedups = {name: function.speedup for name, function in functions.items()}
        return usage(service.store, page, begin_at, end_at, now_s, speedups)

    @answers
    def pool_counts(self, context: Context) -> PoolCounts:
        return pool_counts(self._service.snapshots.changed_after(None))

    @answers
    def work_counts(self, context: Context, project_id: str | None) -> list[WorkCount]:
        return work_counts(self._service.store, project_id)

    @answers
    def flows(self, context: Context, project_id: str | None) -> list[Flow]:
        observed = {flow.job: flow for flow in self._service.store.flows()}
        with self._service.store.single_reads() as tx:
            jobs = tx.job_summaries(observed).values()
        now_s = self._service.clock()
        return [
            flow_of(job, observed[job.uuid].bps, now_s)
            for job in sorted(jobs, key=lambda job: (job.requester, job.host, job.uuid))
            if job.state is JobState.WAITING_INPUT and job.attempt == observed[job.uuid].attempt
            if project_id in (None, job.project_id)
        ]
