"""Tasks: ``/v1/tasks``."""

from typing import Any

from flask import Blueprint, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from fpga_pool.api import schemas, views
from fpga_pool.api.errors import known_uuid, own_or_new_uuid, page_limit, page_marker, scheduler, tenant
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.tasks import TaskShape
from fpga_pool.model.rules.task.admission import ShareRequest, TaskRequest

tasks = Blueprint("tasks", __name__, url_prefix="/v1/tasks")


@tasks.get("")
def list_tasks() -> ResponseReturnValue:
    """List the project's tasks, newest first, a page at a time."""
    limit = page_limit(request.args.get("limit"))
    found = scheduler().tasks(tenant().project_id, limit, page_marker(request.args.get("marker")))
    answer: dict[str, Any] = {"tasks": [views.task(task) for task in found], "links": []}
    if len(found) == limit:
        href = url_for(".list_tasks", limit=limit, marker=found[-1].uuid)
        answer["links"].append({"rel": "next", "href": href})
    return jsonify(answer)


@tasks.post("")
def create() -> ResponseReturnValue:
    """Queue a new task; once this is answered it will not be lost."""
    wanted = schemas.check(schemas.TASK, schemas.body())
    shares = tuple(
        ShareRequest(
            uuid=own_or_new_uuid(share),
            name=share.get("name", ""),
            requester=share["requester"],
            input_bytes=int(share["input_bytes"]),
        )
        for share in wanted["shares"]
    )
    task = scheduler().create_task(
        TaskRequest(
            uuid=own_or_new_uuid(wanted),
            project_id=tenant().project_id,
            user_id=tenant().user_id,
            name=wanted.get("name", ""),
            function=wanted["function"],
            topology=Topology(wanted.get("topology", Topology.ANY)),
            shares=shares,
            shapes=tuple(TaskShape(shape["slots"], _seconds(shape)) for shape in wanted.get("shapes", ())),
        )
    )
    return jsonify({"task": views.task(task)}), 201, {"Location": url_for(".show", task_uuid=task.uuid)}


def _seconds(shape: dict[str, Any]) -> float | None:
    return float(shape["seconds"]) if "seconds" in shape else None


@tasks.get("/<task_uuid>")
def show(task_uuid: str) -> ResponseReturnValue:
    """Show one task: why it waits and until when, or its slots, its shares and its history."""
    return jsonify({"task": views.task_detail(scheduler().task(tenant().project_id, known_uuid("task", task_uuid)))})


@tasks.delete("/<task_uuid>")
def cancel(task_uuid: str) -> ResponseReturnValue:
    """Ask for the end of a task; it is over when its state says so."""
    task = scheduler().cancel_task(tenant().project_id, known_uuid("task", task_uuid))
    return jsonify({"task": views.task(task)}), 202
