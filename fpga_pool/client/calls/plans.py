"""Dry runs: the plans that work would get if it were created now."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, Unpack

from fpga_pool.client import filters as f
from fpga_pool.client.calls.bodies import gang_body, share_requests, subtask_requests, task_body
from fpga_pool.client.inputs import JobSpec, Source, Subtask, job_requests, read_inputs, read_subtasks
from fpga_pool.client.resources import read
from fpga_pool.client.session import ApiSession
from fpga_pool.model.codec import to_plain
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.plans import PlannedBatch, PlannedGang, PlannedPipeline, PlannedTask
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.tasks import TaskShape

PlanT = TypeVar("PlanT")


class DryRuns:
    """Dry runs of work: nothing is stored, loaded or sent, and errors are the same as those of the creation.

    TooManyRequests is raised if the pool is busy with other dry runs for longer than a minute.
    """

    _http: ApiSession

    def plan(self, jobs: Sequence[JobRequest], **options: Unpack[f.BatchOptions]) -> PlannedBatch:
        """Return the plan that a batch would get if it were created now."""
        return self._plan(PlannedBatch, "/v1/plans", {"jobs": to_plain(jobs), **f.as_body(options)})

    def dry_run(self, jobs: Iterable[JobSpec], **options: Unpack[f.BatchOptions]) -> PlannedBatch:
        """Return the plan that a batch would get if it were created now; see `Client.run_jobs`."""
        return self.plan(job_requests(read_inputs(jobs)), **options)

    def dry_run_gang(
        self,
        processes: int,
        runtime_s: float,
        cpu_usage: float = 1.0,
        *,
        work_s: float | None = None,
        image: str = "",
        command: str = "",
    ) -> PlannedGang:
        """Return the plan that a gang would get if it were created now; see `PoolApi.create_gang`."""
        body = gang_body(processes, runtime_s, cpu_usage, work_s, image, command)
        return self._plan(PlannedGang, "/v1/plans/gangs", body)

    def dry_run_pipeline(self, subtasks: Iterable[Subtask]) -> PlannedPipeline:
        """Return the plan that a pipeline would get if it were created now; see `Client.run_pipeline`."""
        given = list(subtasks)
        requests = subtask_requests(job_requests(read_subtasks(given)), given)
        return self._plan(PlannedPipeline, "/v1/plans/pipelines", {"subtasks": to_plain(requests)})

    def dry_run_task(
        self,
        function: str,
        files: Iterable[Source],
        *,
        requester: str,
        topology: Topology = Topology.ANY,
        shapes: Sequence[TaskShape] = (),
        header: bytes = b"",
    ) -> PlannedTask:
        """Return the plan that a task would get if it were created now; see `Client.run_task`."""
        inputs = read_inputs(JobSpec(function, file, requester, header) for file in files)
        body = task_body(function, share_requests(job_requests(inputs)), topology, shapes)
        return self._plan(PlannedTask, "/v1/plans/tasks", body)

    def _plan(self, planned: type[PlanT], path: str, body: dict[str, Any]) -> PlanT:
        return read(planned, self._http.call("POST", path, body=body), "plan")
