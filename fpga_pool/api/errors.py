"""Errors as they leave: one table from class to status, one form of body."""

import logging

from flask import Flask, Response, jsonify
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from fpga_pool.api.context import request_id
from fpga_pool.model import exceptions
from fpga_pool.rpc.transport import NO_ANSWER

LOG = logging.getLogger(__name__)

#: The first class that fits decides.
STATUS: tuple[tuple[type[exceptions.FpgaPoolError], int], ...] = (
    (exceptions.NotFound, 404),
    (exceptions.Conflict, 409),
    (exceptions.InvalidCatalogue, 500),
    (exceptions.InvalidInput, 400),
    (exceptions.StorageFull, 507),
    (exceptions.ServiceUnavailable, 503),
)

#: Codes of what goes wrong before a resource is reached.
HTTP_CODES = {
    404: exceptions.NotFound.code,
    405: "fpga_pool.method_not_allowed",
    413: "fpga_pool.too_large",
    415: "fpga_pool.unsupported_media_type",
}


def handle_errors(app: Flask) -> None:
    """Give every error of `app` the same form."""
    app.register_error_handler(exceptions.FpgaPoolError, _domain_error)
    for kind in NO_ANSWER:
        app.register_error_handler(kind, _scheduler_silent)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def _domain_error(error: exceptions.FpgaPoolError) -> ResponseReturnValue:
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    # An error that came by RPC tells the traceback of the other side in its str(); its argument is what was said.
    message = str(error.args[0]) if error.args else error.code
    if status >= 500:
        LOG.error("%s: %s", error.code, message)
    return _body(error.code, message, status)


def _scheduler_silent(_error: Exception) -> ResponseReturnValue:
    return _body(exceptions.ServiceUnavailable.code, "the scheduler does not answer; try again later", 503)


def _http_error(error: HTTPException) -> ResponseReturnValue:
    status = error.code or 500
    code = HTTP_CODES.get(status, exceptions.InvalidInput.code if status < 500 else exceptions.FpgaPoolError.code)
    body, status = _body(code, error.description or error.name, status)
    # Allow of a 405, for instance; what describes the body is ours.
    headers = [(name, value) for name, value in error.get_headers() if name.lower() != "content-type"]
    return body, status, headers


def _unexpected(error: Exception) -> ResponseReturnValue:
    LOG.error("request %s failed", request_id(), exc_info=error)
    message = "the pool failed; its log tells why, under the id of this request"
    return _body(exceptions.FpgaPoolError.code, message, 500)


def _body(code: str, message: str, status: int) -> tuple[Response, int]:
    return jsonify({"error": {"code": code, "message": message, "request_id": request_id()}}), status
