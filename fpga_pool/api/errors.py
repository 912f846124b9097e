"""Errors of requests: their common body, and the HTTP status of each class of error."""

import logging
import math
from collections.abc import Mapping
from types import MappingProxyType

from flask import Flask, Response, g, jsonify
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException
from werkzeug.http import HTTP_STATUS_CODES

from fpga_pool.api.context import request_id
from fpga_pool.api.versions import NEWEST, OLDEST
from fpga_pool.model import exceptions
from fpga_pool.rpc.transport import NO_ANSWER

LOG = logging.getLogger(__name__)

#: Status by class of error; the first matching class decides.
STATUS: tuple[tuple[type[exceptions.FpgaPoolError], int], ...] = (
    (exceptions.TokenRequired, 401),
    (exceptions.Forbidden, 403),
    (exceptions.QuotaExceeded, 403),
    (exceptions.NotFound, 404),
    (exceptions.UnsupportedVersion, 406),
    (exceptions.Conflict, 409),
    (exceptions.PreconditionFailed, 412),
    (exceptions.InvalidCatalogue, 500),
    (exceptions.NoSuchPath, 404),
    (exceptions.InvalidInput, 400),
    (exceptions.TooManyRequests, 429),
    (exceptions.StorageFull, 507),
    (exceptions.ServiceUnavailable, 503),
)

_NO_SUCH_PATH = "no such path; /v1/openapi.json describes the available ones"

#: Error codes by status, for errors that occur before a resource is reached.
HTTP_CODES = {
    404: exceptions.NoSuchPath.code,
    405: "fpga_pool.method_not_allowed",
    413: "fpga_pool.too_large",
    415: "fpga_pool.unsupported_media_type",
}


def handle_errors(app: Flask) -> None:
    """Register the error handlers, which give all errors of `app` the same form."""
    app.register_error_handler(exceptions.FpgaPoolError, _domain_error)
    for kind in NO_ANSWER:
        app.register_error_handler(kind, _scheduler_silent)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected)


def _domain_error(error: exceptions.FpgaPoolError) -> ResponseReturnValue:
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    # str() of an error received by RPC includes the remote traceback; its first argument is the message.
    message = str(error.args[0]) if error.args else error.code
    if status >= 500:
        LOG.error("%s: %s", error.code, message)
    supported = {"min_version": str(OLDEST), "max_version": str(NEWEST)} if status == 406 else {}
    body, status = _body(error.code, message, status, supported)
    if isinstance(error, exceptions.TooManyRequests):
        body.headers["Retry-After"] = str(max(math.ceil(error.retry_after_s), 1))
    return body, status


def _scheduler_silent(_error: Exception) -> ResponseReturnValue:
    return _body(exceptions.ServiceUnavailable.code, "the scheduler does not answer; try again later", 503)


def _http_error(error: HTTPException) -> ResponseReturnValue:
    status = error.code or 500
    code = HTTP_CODES.get(status, exceptions.InvalidInput.code if status < 500 else exceptions.FpgaPoolError.code)
    detail = _NO_SUCH_PATH if status == 404 else error.description or error.name
    body, status = _body(code, detail, status)
    # Keep headers such as Allow of a 405, except for the type of the replaced body.
    headers = [(name, value) for name, value in error.get_headers() if name.lower() != "content-type"]
    return body, status, headers


def _unexpected(error: Exception) -> ResponseReturnValue:
    LOG.error("request %s failed", request_id(), exc_info=error)
    message = "internal error in the pool; its log has the details under the id of this request"
    return _body(exceptions.FpgaPoolError.code, message, 500)


def _body(code: str, detail: str, status: int, more: Mapping[str, str] = MappingProxyType({})) -> tuple[Response, int]:
    """Return an error body as described by OpenStack's API guideline, and the status."""
    g.error_code = code
    title = HTTP_STATUS_CODES.get(status, "Unknown error")
    error = {"code": code, "status": status, "title": title, "detail": detail, "request_id": request_id()}
    return jsonify({"errors": [{**error, **more}]}), status
