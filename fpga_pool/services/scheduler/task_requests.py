"""What tenants ask about tasks: the tasks' part of `services.scheduler.endpoint`."""

import logging
from collections.abc import Sequence
from typing import Any

from fpga_pool.model.exchange import TaskDetail
from fpga_pool.model.pool.task_admission import TaskRequest, cancel_task, create_task, owned_task
from fpga_pool.model.pool.tasks import task_detail
from fpga_pool.model.tasks import Task
from fpga_pool.rpc.transport import answers
from fpga_pool.services.scheduler.service import SchedulerService

LOG = logging.getLogger(__name__)

Context = dict[str, Any]


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
