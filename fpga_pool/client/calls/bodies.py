"""Bodies of requests for work, which are the same for its creation and its dry run."""

from collections.abc import Iterable, Sequence
from typing import Any

from fpga_pool.client.inputs import Subtask
from fpga_pool.model.codec import to_plain
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import JobRequest, ShareRequest, SubtaskRequest
from fpga_pool.model.objects.tasks import TaskShape


def gang_body(
    processes: int, runtime_s: float, cpu_usage: float, work_s: float | None, image: str, command: str
) -> dict[str, Any]:
    """Return the body of a request for a gang; see `PoolApi.create_gang`."""
    body: dict[str, Any] = {"processes": processes, "runtime_s": runtime_s, "cpu_usage": cpu_usage}
    body |= {name: text for name, text in (("image", image), ("command", command)) if text}
    return body | ({} if work_s is None else {"work_s": work_s})


def task_body(
    function: str, shares: Sequence[ShareRequest], topology: Topology, shapes: Sequence[TaskShape]
) -> dict[str, Any]:
    """Return the body of a request for a task; see `PoolApi.create_task`."""
    return {
        "function": function,
        "topology": str(topology),
        "shares": to_plain(shares),
        "shapes": to_plain(shapes),
    }


def share_requests(jobs: Iterable[JobRequest]) -> list[ShareRequest]:
    """Return jobs of one function as the shares of a task."""
    return [
        ShareRequest(uuid=job.uuid, name=job.name, requester=job.requester, input_bytes=job.input_bytes) for job in jobs
    ]


def subtask_requests(jobs: Iterable[JobRequest], subtasks: Iterable[Subtask]) -> list[SubtaskRequest]:
    """Return the requests for the subtasks of a pipeline, with the uuids and input sizes of their jobs."""
    return [
        SubtaskRequest(
            uuid=job.uuid,
            name=subtask.name,
            function=subtask.function,
            after=subtask.after,
            requester=subtask.requester,
            input_bytes=job.input_bytes,
        )
        for job, subtask in zip(jobs, subtasks, strict=True)
    ]
