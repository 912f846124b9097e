"""Runs of a batch that was created earlier, perhaps by a client that was killed since, and of tasks and pipelines.

The pool has all the information that a client needs to continue a batch: where its jobs are, which inputs are missing,
and which results are held.  Results that are complete in the output directory are not fetched again.
"""

import time
from collections.abc import Sequence
from typing import Any

from fpga_pool.client.api import PoolApi
from fpga_pool.client.calls.bodies import share_requests, subtask_requests
from fpga_pool.client.inputs import Input, Subtask, read_subtasks
from fpga_pool.client.outcome import called, make_directory
from fpga_pool.client.runner import BatchRunner
from fpga_pool.client.transfers import AT_CLIENT, Goal, Transfer, absent_input, found_result, result_files
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import Batch, Job
from fpga_pool.model.objects.tasks import Task, TaskShape


class AttachedRunner(BatchRunner):
    """Continues a batch; its input files are needed only while the pool lacks some.  `run` may be called once.

    Unlike the client that created the batch, it never cancels it.
    """

    def __init__(
        self, api: PoolApi, batch_uuid: str, inputs: Sequence[Input], *, goal: Goal = Goal.RESULTS, **options: Any
    ) -> None:
        super().__init__(api, inputs, batch_uuid=batch_uuid, **options)
        self._goal = goal

    def _create(self) -> None:
        """Get the jobs of the batch, and find their results that are in the output directory already."""
        jobs = self._find()
        sources = self._sources([job for job in jobs if not job.predecessors])
        read = {uuid for job in jobs for uuid in job.predecessors}
        make_directory(self._output_dir)
        self._transfers = [
            Transfer(
                source=sources.get(job.uuid) or absent_input(job),
                sink=sink,
                job=job,
                goal=self._goal,
                intermediate=job.uuid in read,
                result=found_result(sink, job),
            )
            for job, sink in zip(jobs, result_files(self._output_dir, jobs), strict=True)
        ]

    def _find(self) -> list[Job]:
        """Return the jobs of the batch; ServiceUnavailable if the API is unreachable for longer than `patience_s`."""
        until_s = time.monotonic() + self._settings.patience_s
        while True:
            try:
                jobs = self._api.jobs(self.batch_uuid)
            except ServiceUnavailable:
                if time.monotonic() > until_s:
                    raise
                time.sleep(self._settings.slow_poll_s)
            else:
                self._heard_s = time.monotonic()
                return jobs

    def _sources(self, jobs: Sequence[Job]) -> dict[str, Input]:
        """Return the given inputs by the uuid of the job; InvalidInput if one is missing or does not match its job."""
        if self._inputs:
            require_same(jobs, self._inputs)
            return {job.uuid: source for job, source in zip(jobs, self._inputs, strict=True)}
        missing = [called(job) for job in jobs if job.state in AT_CLIENT]
        if missing and self._goal is Goal.RESULTS:
            raise InvalidInput(
                f"files: the pool does not hold {len(missing)} of {len(jobs)} inputs yet ({missing[0]}); attach with "
                "the files of the batch to send them"
            )
        return {}

    def _may_leave(self) -> bool:
        return self._goal is Goal.HELD or self._has_problem


def require_same(jobs: Sequence[Job], inputs: Sequence[Input]) -> None:
    """Raise InvalidInput unless these inputs match the jobs in number, order, name and size."""
    if len(inputs) != len(jobs):
        raise InvalidInput(
            f"files: expected {len(jobs)}, one for each job in the order of the batch, found {len(inputs)}"
        )
    for job, source in zip(jobs, inputs, strict=True):
        if (source.name, source.input_bytes) != (job.name, job.input_bytes):
            raise InvalidInput(
                f"files[{job.index}]: expected {called(job)} of {job.input_bytes} bytes, as the batch has it; "
                f"found {source.name} of {source.input_bytes} bytes"
            )


class TaskRunner(BatchRunner):
    """Runs one task with a share for each input, all of one function; `run` may be called once."""

    def __init__(
        self, api: PoolApi, inputs: Sequence[Input], topology: Topology, shapes: Sequence[TaskShape], **options: Any
    ) -> None:
        super().__init__(api, inputs, **options)
        self._topology = topology
        self._shapes = shapes

    def _submit(self, requests: Sequence[JobRequest]) -> tuple[Task, None]:
        created = self._api.create_task(
            requests[0].function,
            share_requests(requests),
            topology=self._topology,
            shapes=self._shapes,
            name=self._name,
            uuid=self.batch_uuid,
            patience_s=self._settings.patience_s,
        )
        return created, None


class PipelineRunner(BatchRunner):
    """Runs one pipeline; `run` may be called once, and returns the results that no other subtask reads."""

    def __init__(self, api: PoolApi, subtasks: Sequence[Subtask], **options: Any) -> None:
        super().__init__(api, read_subtasks(subtasks), **options)
        self._subtasks = subtasks

    def _submit(self, requests: Sequence[JobRequest]) -> tuple[Batch, None]:
        subtasks = subtask_requests(requests, self._subtasks)
        created = self._api.create_pipeline(
            subtasks, name=self._name, uuid=self.batch_uuid, patience_s=self._settings.patience_s
        )
        return created, None

    def _create(self) -> None:
        super()._create()
        read = {name for subtask in self._subtasks for name in subtask.after}
        for transfer, subtask in zip(self._transfers, self._subtasks, strict=True):
            transfer.intermediate = subtask.name in read
