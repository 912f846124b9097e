"""Requests of tenants on gangs and tasks, which are part of `services.scheduler.endpoint`."""

import logging
from collections.abc import Sequence
from typing import Any

from fpga_pool.model.messages.requests import GangDetail, TaskDetail
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.gang.admission import GangRequest, cancel_gang, create_gang, owned_gang
from fpga_pool.model.rules.gang.decisions import gang_detail
from fpga_pool.model.rules.task.admission import TaskRequest, cancel_task, create_task, owned_task
from fpga_pool.model.rules.task.decisions import task_detail
from fpga_pool.rpc.transport import answers
from fpga_pool.services.scheduler.service import SchedulerService

LOG = logging.getLogger(__name__)

Context = dict[str, Any]


class GangRequests:
    """Answers tenants of gangs; every change is committed before it is answered."""

    _service: SchedulerService

    @answers
    def create_gang(self, context: Context, request: GangRequest) -> Gang:
        with self._service.store.admission() as tx:
            gang = create_gang(tx, request, self._service.clock(), self._service.gangs.last_runs)
        LOG.info("gang %s of project %s: %d processes", gang.uuid, gang.project_id, gang.processes)
        self._service.work_arrived()
        return gang

    @answers
    def gangs(self, context: Context, project_id: str, limit: int, marker: str | None) -> Sequence[Gang]:
        with self._service.store.reading() as tx:
            return tx.gangs(project_id, limit=limit, marker=marker)

    @answers
    def gang(self, context: Context, project_id: str, uuid: str) -> GangDetail:
        with self._service.store.reading() as tx:
            shard = owned_gang(tx, uuid, project_id).shard
        service = self._service
        with service.store.reading(shard) as tx:
            return gang_detail(tx, uuid, service.settings.pool, service.gangs, service.clock())

    @answers
    def cancel_gang(self, context: Context, project_id: str, uuid: str) -> Gang:
        service = self._service
        with service.store.reading() as tx:
            shard = owned_gang(tx, uuid, project_id).shard
        gang = service.writer(shard).run(lambda tx: cancel_gang(tx, uuid, project_id, service.clock()))
        LOG.info("gang %s: cancellation requested", uuid)
        service.work_arrived()
        return gang


class TaskRequests:
    """Answers tenants of tasks; every change is committed before it is answered."""

    _service: SchedulerService

    @answers
    def create_task(self, context: Context, request: TaskRequest) -> Task:
        service = self._service
        with service.store.admission() as tx:
            task = create_task(tx, request, service.catalogue, service.settings.pool, service.clock())
        LOG.info("task %s of project %s: %d slots, %s", task.uuid, task.project_id, task.slots, task.topology)
        service.work_arrived()
        return task

    @answers
    def tasks(self, context: Context, project_id: str, limit: int, marker: str | None) -> Sequence[Task]:
        with self._service.store.reading() as tx:
            return tx.tasks(project_id, limit=limit, marker=marker)

    @answers
    def task(self, context: Context, project_id: str, uuid: str) -> TaskDetail:
        service = self._service
        with service.store.reading() as tx:
            shard = owned_task(tx, uuid, project_id).shard
        with service.store.reading(shard) as tx:
            return task_detail(tx, uuid, service.catalogue, service.clock())

    @answers
    def cancel_task(self, context: Context, project_id: str, uuid: str) -> Task:
        service = self._service
        with service.store.reading() as tx:
            shard = owned_task(tx, uuid, project_id).shard
        task = service.writer(shard).run(lambda tx: cancel_task(tx, uuid, project_id, service.clock()))
        LOG.info("task %s: cancellation requested", uuid)
        service.work_arrived()
        return task
