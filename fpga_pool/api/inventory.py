"""Functions, hosts and slots: ``/v1/functions``, ``/v1/hosts`` and ``/v1/slots``."""

from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue

from fpga_pool.api import schemas, views
from fpga_pool.api.errors import known_uuid, scheduler
from fpga_pool.model.objects.pool import Slot

functions = Blueprint("functions", __name__, url_prefix="/v1/functions")


@functions.get("")
def list_functions() -> ResponseReturnValue:
    """List the catalogue as it is in force."""
    return jsonify({"functions": [views.function(info) for info in scheduler().functions()]})


@functions.get("/calibration")
def calibration() -> ResponseReturnValue:
    """Show how well the time models fit, of one function or of all."""
    fits = scheduler().calibration(request.args.get("function"))
    return jsonify({"calibration": [views.calibration(fit) for fit in fits]})


hosts = Blueprint("hosts", __name__, url_prefix="/v1/hosts")


@hosts.get("")
def list_hosts() -> ResponseReturnValue:
    """List all hosts, by name."""
    return jsonify({"hosts": [views.host(host) for host in scheduler().hosts()]})


slots = Blueprint("slots", __name__, url_prefix="/v1/slots")


@slots.get("")
def list_slots() -> ResponseReturnValue:
    """List all slots, by name."""
    return jsonify({"slots": [views.slot(slot) for slot in scheduler().slots()]})


@slots.get("/<slot_uuid>")
def show(slot_uuid: str) -> ResponseReturnValue:
    """Show one slot, with its history."""
    return jsonify(_whole(scheduler().slot(known_uuid("slot", slot_uuid))))


@slots.patch("/<slot_uuid>")
def change(slot_uuid: str) -> ResponseReturnValue:
    """Take a slot out of service, or give it back; a drain is over when the state says DRAINED."""
    wanted = schemas.check(schemas.SLOT_CHANGE, schemas.body())
    uuid = known_uuid("slot", slot_uuid)
    if wanted["drain"]:
        return jsonify(_whole(scheduler().drain_slot(uuid, wanted.get("reason", ""))))
    return jsonify(_whole(scheduler().resume_slot(uuid)))


def _whole(slot: Slot) -> views.View:
    return {"slot": {**views.slot(slot), "history": views.history(slot.history)}}
