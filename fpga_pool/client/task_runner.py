"""A task from its creation to its results: its shares are jobs of a batch, and travel as those do."""

from collections.abc import Sequence
from typing import Any

from fpga_pool.client.api import PoolApi
from fpga_pool.client.inputs import Input
from fpga_pool.client.runner import BatchRunner
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects import Batch
from fpga_pool.model.pool.admission import JobRequest
from fpga_pool.model.pool.task_admission import ShareRequest
from fpga_pool.model.tasks import TaskShape


class TaskRunner(BatchRunner):
    """Runs one task, a share for each input, all of one function; `run` is called once."""

    def __init__(
        self, api: PoolApi, inputs: Sequence[Input], topology: Topology, shapes: Sequence[TaskShape], **options: Any
    ) -> None:
        super().__init__(api, inputs, **options)
        self._topology = topology
        self._shapes = shapes

    def _submit(self, requests: Sequence[JobRequest]) -> Batch:
        shares = [
            ShareRequest(uuid=job.uuid, name=job.name, requester=job.requester, input_bytes=job.input_bytes)
            for job in requests
        ]
        function = requests[0].function
        self._api.create_task(
            function,
            shares,
            topology=self._topology,
            shapes=self._shapes,
            name=self._name,
            uuid=self.batch_uuid,
        )
        return self._api.batch(self.batch_uuid)
