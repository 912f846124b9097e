"""Requests of tenants for dry runs: a part of `services.scheduler.endpoint`."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fpga_pool.conf.policies import is_proving
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.plans import PlannedBatch, PlannedGang, PlannedPipeline, PlannedTask
from fpga_pool.model.messages.work import BatchRequest, GangRequest, PipelineRequest, TaskRequest, WorkRequest
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.batch.admission import admit_batch
from fpga_pool.model.rules.batch.dry_run import DryRun
from fpga_pool.model.rules.gang.admission import admit_gang
from fpga_pool.model.rules.gang.dry_run import plan_gang
from fpga_pool.model.rules.pipeline.admission import admit_pipeline
from fpga_pool.model.rules.pipeline.dry_run import plan_pipeline
from fpga_pool.model.rules.shared.dry_runs import DryRunContext
from fpga_pool.model.rules.task.admission import admit_task
from fpga_pool.model.rules.task.dry_run import plan_task
from fpga_pool.rpc.transport import Context, answers
from fpga_pool.services.scheduler.service import SchedulerService
from fpga_pool.store.transaction import SqlTransaction

AdmittedT = TypeVar("AdmittedT")
PlanT = TypeVar("PlanT")


class DryRunRequests:
    """Predicts how work would be executed if it was created now; nothing is stored, loaded or sent.

    Raises the same errors as its creation, and TooManyRequests while another dry run is in progress.
    """

    _service: SchedulerService
    #: Returns a request with the effective policy; raises InvalidInput if that policy cannot be used.
    _with_policy: Callable[[BatchRequest], BatchRequest]

    @answers
    def plan_batch(self, context: Context, request: BatchRequest) -> PlannedBatch:
        wanted = self._with_policy(request)
        if is_proving("batch", wanted.policy):
            raise InvalidInput(
                f"policy: {wanted.policy!r} plans for as long as its proof takes, so there is no dry run with it"
            )

        def admit(tx: SqlTransaction, now_s: float) -> tuple[Batch, list[Job]]:
            catalogue = self._visible(tx, wanted, {job.function for job in wanted.jobs})
            return _new(tx, *admit_batch(tx, wanted, catalogue, self._service.settings.pool, now_s))

        return self._dry_run(Batch, wanted, admit, lambda admitted, made_with: DryRun(*admitted, made_with).run())

    @answers
    def plan_task(self, context: Context, request: TaskRequest) -> PlannedTask:
        def admit(tx: SqlTransaction, now_s: float) -> tuple[Task, list[Job]]:
            catalogue = self._visible(tx, request, {request.function})
            task, batch, shares = admit_task(tx, request, catalogue, self._service.settings.pool, now_s)
            _new(tx, batch, shares)
            return task, shares

        return self._dry_run(Task, request, admit, lambda admitted, made_with: plan_task(*admitted, made_with))

    @answers
    def plan_gang(self, context: Context, request: GangRequest) -> PlannedGang:
        def admit(tx: SqlTransaction, now_s: float) -> Gang:
            gang = admit_gang(tx, request, now_s, self._service.gangs.last_runs)
            tx.refuse_stored(Gang, [gang.uuid])
            return gang

        return self._dry_run(Gang, request, admit, plan_gang)

    @answers
    def plan_pipeline(self, context: Context, request: PipelineRequest) -> PlannedPipeline:
        def admit(tx: SqlTransaction, now_s: float) -> tuple[Batch, list[Job]]:
            catalogue = self._visible(tx, request, {one.function for one in request.subtasks})
            return _new(tx, *admit_pipeline(tx, request, catalogue, self._service.settings.pool, now_s))

        return self._dry_run(Batch, request, admit, lambda admitted, made_with: plan_pipeline(*admitted, made_with))

    def _visible(self, tx: SqlTransaction, request: WorkRequest, functions: set[str]) -> Catalogue:
        return self._service.designs.visible(tx, request.project_id, functions)

    def _dry_run(
        self,
        kind: type,
        request: WorkRequest,
        admit: Callable[[SqlTransaction, float], AdmittedT],
        plan: Callable[[AdmittedT, DryRunContext], PlanT],
    ) -> PlanT:
        """Return the plan of the work that `admit` returns; no transaction is open while a policy decides."""
        service = self._service
        unified = service.unified(request.project_id)
        with service.dry_runs.turn(request.project_id):
            now_s = service.clock()
            with service.store.reading() as tx:
                service.check_quota_now(tx, kind, request, unified)
                admitted = admit(tx, now_s)
                everything = service.designs.everything(tx)
            return plan(
                admitted,
                DryRunContext(
                    reading=service.store.reading,
                    catalogue=everything,
                    settings=service.settings.pool,
                    policies=service.policies,
                    now_s=now_s,
                    timer=service.dry_runs.timer,
                    rng=np.random.default_rng(service.settings.seed),
                ),
            )


def _new(tx: SqlTransaction, batch: Batch, jobs: list[Job]) -> tuple[Batch, list[Job]]:
    """Return a batch and its jobs; raise DuplicateId if one of them already exists."""
    tx.refuse_stored(Batch, [batch.uuid])
    tx.refuse_stored(Job, [job.uuid for job in jobs])
    return batch, jobs
