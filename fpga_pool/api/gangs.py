"""Gangs: ``/v1/gangs``."""

from typing import Any

from flask import Blueprint, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from fpga_pool.api import schemas, views
from fpga_pool.api.errors import known_uuid, own_or_new_uuid, page_limit, page_marker, scheduler, tenant
from fpga_pool.model.rules.gang.admission import GangRequest

gangs = Blueprint("gangs", __name__, url_prefix="/v1/gangs")


@gangs.get("")
def list_gangs() -> ResponseReturnValue:
    """List the project's gangs, newest first, a page at a time."""
    limit = page_limit(request.args.get("limit"))
    found = scheduler().gangs(tenant().project_id, limit, page_marker(request.args.get("marker")))
    answer: dict[str, Any] = {"gangs": [views.gang(gang) for gang in found], "links": []}
    if len(found) == limit:
        href = url_for(".list_gangs", limit=limit, marker=found[-1].uuid)
        answer["links"].append({"rel": "next", "href": href})
    return jsonify(answer)


@gangs.post("")
def create() -> ResponseReturnValue:
    """Queue a new gang; once this is answered it will not be lost."""
    wanted = schemas.check(schemas.GANG, schemas.body())
    work_s = wanted.get("work_s")
    gang = scheduler().create_gang(
        GangRequest(
            uuid=own_or_new_uuid(wanted),
            project_id=tenant().project_id,
            user_id=tenant().user_id,
            name=wanted.get("name", ""),
            processes=int(wanted["processes"]),
            runtime_s=float(wanted["runtime_s"]),
            cpu_usage=float(wanted["cpu_usage"]),
            work_s=None if work_s is None else float(work_s),
            image=wanted.get("image", ""),
            command=wanted.get("command", ""),
        )
    )
    return jsonify({"gang": views.gang(gang)}), 201, {"Location": url_for(".show", gang_uuid=gang.uuid)}


@gangs.get("/<gang_uuid>")
def show(gang_uuid: str) -> ResponseReturnValue:
    """Show one gang: why it waits and until when, its processes, its migrations and its history."""
    return jsonify({"gang": views.gang_detail(scheduler().gang(tenant().project_id, known_uuid("gang", gang_uuid)))})


@gangs.delete("/<gang_uuid>")
def cancel(gang_uuid: str) -> ResponseReturnValue:
    """Ask for the end of a gang; it is over when its state says so."""
    gang = scheduler().cancel_gang(tenant().project_id, known_uuid("gang", gang_uuid))
    return jsonify({"gang": views.gang(gang)}), 202
