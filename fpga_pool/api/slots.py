"""Slots: ``/v1/slots``."""

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from fpga_pool.api import schemas, views
from fpga_pool.api.context import known_uuid, scheduler
from fpga_pool.model.objects import Slot

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
