"""What tenants ask about tasks: the tasks' part of `services.scheduler.endpoint`."""

import logging
from typing import Any

from fpga_pool.model.encoding import to_plain
from fpga_pool.model.pool.task_admission import TaskRequest, cancel_task, create_task, owned_task
from fpga_pool.model.pool.tasks import task_detail
from fpga_pool.rpc.transport import answers, read
from fpga_pool.services.scheduler.service import SchedulerService

LOG = logging.getLogger(__name__)

Plain = dict[str, Any]


class TaskRequests:
    """Answers tenants of tasks; every change is committed before it is answered."""

    _service: SchedulerService

    @answers
    def create_task(self, context: Plain, request: Plain) -> Plain:
        """See SchedulerAPI."""
        wanted = read(TaskRequest, request)
        service = self._service
        with service.store.admission() as tx:
            task = create_task(tx, wanted, service.catalogue, service.settings.pool, service.clock())
        LOG.info("task %s of project %s: %d slots, %s", task.uuid, task.project_id, task.slots, task.topology)
        service.work_arrived()
        return to_plain(task)

    @answers
    def tasks(self, context: Plain, project_id: str, limit: int, marker: str | None) -> list[Plain]:
        """See SchedulerAPI."""
        with self._service.store.reading() as tx:
            return [to_plain(task) for task in tx.tasks(project_id, limit=limit, marker=marker)]

    @answers
    def task(self, context: Plain, project_id: str, uuid: str) -> Plain:
        """See SchedulerAPI."""
        service = self._service
        with service.store.reading() as tx:
            shard = owned_task(tx, uuid, project_id).shard
        with service.store.reading(shard) as tx:
            return to_plain(task_detail(tx, uuid, service.catalogue, service.clock()))

    @answers
    def cancel_task(self, context: Plain, project_id: str, uuid: str) -> Plain:
        """See SchedulerAPI."""
        service = self._service
        with service.store.reading() as tx:
            shard = owned_task(tx, uuid, project_id).shard
        task = service.writer(shard).run(lambda tx: cancel_task(tx, uuid, project_id, service.clock()))
        LOG.info("task %s: cancellation requested", uuid)
        service.work_arrived()
        return to_plain(task)
