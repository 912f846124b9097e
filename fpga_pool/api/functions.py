"""Functions of the catalogue: ``/v1/functions``."""

from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue

from fpga_pool.api import views
from fpga_pool.api.context import scheduler

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
