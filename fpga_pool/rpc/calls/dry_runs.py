# mypy: disable-error-code="empty-body"
"""Calls for dry runs, which are part of `rpc.scheduler_api`."""

from fpga_pool.model.messages.plans import PlannedBatch, PlannedGang, PlannedPipeline, PlannedTask
from fpga_pool.model.messages.work import BatchRequest, GangRequest, PipelineRequest, TaskRequest
from fpga_pool.rpc.transport import calls


@calls
class DryRunCalls:
    """Calls that plan work as if it was created now; nothing is stored, and errors are those of its creation."""

    def plan_batch(self, request: BatchRequest) -> PlannedBatch:
        """Return the plan of a batch as if it was created now."""

    def plan_gang(self, request: GangRequest) -> PlannedGang:
        """Return the plan of a gang as if it was created now."""

    def plan_pipeline(self, request: PipelineRequest) -> PlannedPipeline:
        """Return the plan of a pipeline as if it was created now."""

    def plan_task(self, request: TaskRequest) -> PlannedTask:
        """Return the plan of a task as if it was created now."""
