"""Context and errors of requests: tenant, request id, common arguments, and one form of error body."""

import logging
import re
import uuid
from dataclasses import dataclass
from typing import cast

from flask import Flask, Response, current_app, g, jsonify, request
from flask.typing import ResponseReturnValue
from oslo_context.context import RequestContext, generate_request_id
from werkzeug.exceptions import HTTPException

from fpga_pool.model import exceptions
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import NO_ANSWER

# ---- Context of a request

#: Project and user of a request that names none.
DEFAULT_ID = "demo"

#: OpenStack's name for it.
REQUEST_ID_HEADER = "x-openstack-request-id"

_SCHEDULER = "fpga_pool_scheduler"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """On whose behalf a request comes."""

    project_id: str
    user_id: str


def provide_scheduler(app: Flask, scheduler: SchedulerAPI) -> None:
    """Let the resources of `app` ask this scheduler."""
    app.extensions[_SCHEDULER] = scheduler


def scheduler() -> SchedulerAPI:
    """Return the scheduler that answers this application."""
    return cast("SchedulerAPI", current_app.extensions[_SCHEDULER])


def tenant() -> Tenant:
    """Return who asks."""
    return cast("Tenant", g.tenant)


def request_id() -> str:
    """Return the id that the answer and the log carry."""
    return cast("str", g.request_id)


def number() -> None:
    """Give the request its id, before anything can go wrong with it."""
    g.request_id = generate_request_id()


def identify() -> None:
    """Find out who asks, before it is done.

    The headers are believed: there is no authentication yet, which is why the server listens on loopback only.
    Keystone's middleware will set the same headers from a token that it has checked.
    """
    g.tenant = Tenant(_identity("X-Project-Id"), _identity("X-User-Id"))
    RequestContext(request_id=request_id(), project_id=g.tenant.project_id, user_id=g.tenant.user_id)


def _identity(header: str) -> str:
    value = request.headers.get(header, DEFAULT_ID)
    if not _ID.fullmatch(value):
        raise InvalidInput(f"{header}: expected 1 to 64 letters, digits, dots, dashes, underscores or @")
    return value


def known_uuid(noun: str, text: str) -> str:
    """Return the canonical form of the uuid in a URL; what is no uuid names nothing that exists."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise NotFound(f"no {noun} {text[:64]!r}: not a uuid") from None


# ---- Errors

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
    # str() of an error that came by RPC includes the traceback of the other side; its argument is the message.
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
    message = "internal error in the pool; its log has the details under the id of this request"
    return _body(exceptions.FpgaPoolError.code, message, 500)


def _body(code: str, message: str, status: int) -> tuple[Response, int]:
    return jsonify({"error": {"code": code, "message": message, "request_id": request_id()}}), status
