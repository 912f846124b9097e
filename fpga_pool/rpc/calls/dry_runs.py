# mypy: disable-error-code="empty-body"
"""Calls for dry runs, which are part of `rpc.scheduler_api`."""

from fpga_pool.model.messages.plans import PlannedBatch, PlannedGang, PlannedPipeline, PlannedTask
from fpga_pool.model.messages.work import BatchRequest, GangRequest, PipelineRequest, TaskRequest
from fpga_pool.rpc.transport import calls


@calls
class DryRunCalls:
    """What would become of work if it was created now; nothing is stored, and errors are those of the creation."""

    def plan_batch(self, request: BatchRequest) -> PlannedBatch:
        """Return what would become of a batch."""

    def plan_gang(self, request: GangRequest) -> PlannedGang:
        """Return what would become of a gang."""

    def plan_pipeline(self, request: PipelineRequest) -> PlannedPipeline:
        """Return what would become of a pipeline."""

    def plan_task(self, request: TaskRequest) -> PlannedTask:
        """Return what would become of a task."""
