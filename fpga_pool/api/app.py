"""The Flask application: its routes, and the processing before and after each request."""

import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_origin

import msgspec
from flask import Flask, Response, current_app, g, jsonify, redirect, request, url_for
from flask.typing import ResponseReturnValue
from oslo_middleware.request_id import HTTP_RESP_HEADER_REQUEST_ID
from oslo_policy.policy import Enforcer
from werkzeug.exceptions import BadRequest, UnsupportedMediaType

from fpga_pool.api import context, errors, versions
from fpga_pool.api.dashboard.routes import add_dashboard
from fpga_pool.api.http.server import is_foreign
from fpga_pool.api.openapi import openapi
from fpga_pool.api.operation import Call, Operation
from fpga_pool.api.operations import OPERATIONS
from fpga_pool.api.personas import RAISED
from fpga_pool.api.policies import (
    RAISE,
    Authorizer,
    default_enforcer,
    names_projects,
    purges_projects,
    rule_name,
    rule_of_others,
)
from fpga_pool.api.rates import Places, RequestRates
from fpga_pool.metrics import table
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.codec import bare, from_body, hints_of, read
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.queries import NoQuery
from fpga_pool.model.preconditions import Seen, digest, version_of
from fpga_pool.model.rest import rest_type, show
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import Refusals

LOG = logging.getLogger(__name__)

#: Several times the size of the largest accepted batch, so that larger ones get an error that states the limit of jobs.
MAX_BODY_BYTES = 32 * 2**20

_INSTRUMENTS = "fpga_pool_instruments"
_REFUSALS = "fpga_pool_refusals"
#: Operation of a request that matches no route, in metrics.
_NO_OPERATION = "unknown"


def create_app(
    scheduler: SchedulerAPI,
    *,
    max_batch_jobs: int = PoolSettings().max_batch_jobs,
    max_body_bytes: int = MAX_BODY_BYTES,
    enforcer: Enforcer | None = None,
    keystone: bool = False,
    instruments: Instruments | None = None,
) -> Flask:
    """Return the API of the pool that `scheduler` serves.

    `enforcer` has the rules of the policy (None = the default ones).  With `keystone`, middleware in front of the
    application validates tokens; otherwise the caller's headers are trusted.  `instruments` count requests.
    """
    app = Flask("fpga_pool.api", static_folder=None)
    app.config.update(MAX_CONTENT_LENGTH=max_body_bytes, MAX_BATCH_JOBS=max_batch_jobs, KEYSTONE=keystone)
    # Keep the order of lists and of the fields of objects.
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    app.extensions[_INSTRUMENTS] = instruments or Instruments()
    app.extensions[_REFUSALS] = Refusals()
    context.provide_scheduler(app, scheduler)
    errors.handle_errors(app)
    app.before_request(_note_start)
    app.before_request(context.number)
    if not keystone:
        app.before_request(_require_loopback_name)
    app.before_request(versions.choose_version)
    app.after_request(_log)
    app.add_url_rule("/", view_func=list_versions)
    app.add_url_rule("/v1/", view_func=show_version)
    app.add_url_rule("/v1/openapi.json", view_func=openapi_document)
    add_dashboard(app)
    authorizer, rates, places = Authorizer(enforcer or default_enforcer()), RequestRates(), Places()
    for operation in OPERATIONS:
        view = _view(operation, authorizer, rates, places)
        app.add_url_rule(operation.path, operation.name, view, methods=[operation.method])
    return app


def list_versions() -> ResponseReturnValue:
    """List the versions of the API; redirect clients that prefer HTML, i.e. browsers, to the dashboard."""
    _query(NoQuery)
    wanted = request.accept_mimetypes
    prefers_page = wanted["text/html"] > wanted["application/json"]
    listed = jsonify({"versions": [versions.document(_root())]})
    response = redirect(url_for("dashboard"), 303) if prefers_page else listed
    response.vary.add("Accept")
    return response


def show_version() -> ResponseReturnValue:
    """Show this version of the API."""
    _query(NoQuery)
    return jsonify({"version": versions.document(_root())})


def _root() -> str:
    return request.root_url.rstrip("/")


def openapi_document() -> ResponseReturnValue:
    """Return the OpenAPI document: all operations, and the schemas of their requests and responses."""
    _query(NoQuery)
    return _json(openapi())


def _view(
    operation: Operation, authorizer: Authorizer, rates: RequestRates, places: Places
) -> Callable[..., ResponseReturnValue]:
    """Return the Flask view of an operation."""
    of_projects, purges = names_projects(operation), purges_projects(operation)

    def view(uuid: str = "", name: str = "") -> ResponseReturnValue:
        caller = context.identify()
        if project_id := context.tenant().project_id:  # callers of system scope are operators without a quota
            rates.take(project_id, context.scheduler().quota)
        authorizer.require(rule_name(operation), operation.persona, caller)
        query = _query(operation.query)
        if of_projects and (caller.project_id is None or query.project_id not in (None, caller.project_id)):
            authorizer.require(*rule_of_others(operation), caller)
        known = context.known_uuid(operation.noun, uuid) if "<uuid>" in operation.path else name
        body = None if operation.body is None else from_body(rest_type(operation.body, request=True), _body())
        if (getattr(body, "priority", None) or 0) > 0:
            authorizer.require(RAISE, RAISED, caller)
        purged = getattr(body, "project_id", None)
        if purges and (purged is None or purged != caller.project_id):
            authorizer.require(*rule_of_others(operation), caller)
        with places.taken(project_id, getattr(query, "wait_s", 0.0)) as wait_s:
            answer = thing = operation.handle(Call(known, query, body, wait_s, _seen(operation)))
        if operation.key:
            answer = {operation.key: show(thing, detail=operation.status == 200)}
        response = _json(answer)
        response.status_code = operation.status
        response.headers.update(operation.headers)
        if operation.status == 201:
            created = getattr(thing, operation.created) if operation.created else thing
            response.headers["Location"] = f"{operation.path}/{created.uuid}"
        if operation.has_tag:
            _tag(response, version_of(thing))
        return response

    return view


def _query(wanted: Any) -> Any:
    """Return the parameters of the request. Raises InvalidInput if one is unknown or invalid."""
    hints = hints_of(wanted)
    lists = {name for name, hint in hints.items() if get_origin(hint) is tuple}
    dates = {name for name, hint in hints.items() if bare(hint) is datetime}
    given: dict[str, Any] = {}
    for name, texts in request.args.lists():
        if name not in lists and len(texts) > 1:
            raise InvalidInput(f"{name[:64]}: expected once, found {len(texts)} times")
        # Dates are parsed strictly; otherwise numbers would be accepted, too, as seconds since 1970.
        given[name] = texts if name in lists else read(hints[name], texts[0], name) if name in dates else texts[0]
    return read(wanted, given, "", root="query", strict=False)


def _seen(operation: Operation) -> Seen:
    """Return the versions in If-Match. Raises InvalidInput if the operation does not support the condition."""
    if "If-Match" in request.headers and not operation.is_conditional:
        raise InvalidInput("If-Match: expected with PUT, PATCH and DELETE only")
    if "If-None-Match" in request.headers and request.method not in ("GET", "HEAD"):
        raise InvalidInput("If-None-Match: expected with GET only")
    if "If-Match" not in request.headers or request.if_match.star_tag:
        return None
    # Weak tags match nothing, as the representation may differ; nor do invalid ones (None).
    return tuple(tag.partition("-")[0][:64] for tag in sorted(filter(None, request.if_match))[:100])


def _tag(response: Response, version: str) -> None:
    """Add the ETag: the version of the object, which If-Match compares, and a digest of the whole body.

    If If-None-Match of a GET contains it, the response is 304, without a body.
    """
    tag = "-".join(filter(None, [version, digest(response.get_data())]))
    response.set_etag(tag)
    # The caller's cache may store the response, but must revalidate it.
    response.headers["Cache-Control"] = "private, no-cache"
    if request.method in ("GET", "HEAD") and request.if_none_match.contains_weak(tag):
        response.status_code = 304


def _body() -> bytes:
    if not request.is_json:
        raise UnsupportedMediaType("the body must be JSON: Content-Type: application/json")
    return request.get_data(cache=False)


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), mimetype="application/json")


def _note_start() -> None:
    g.begin_s = time.monotonic()


def _require_loopback_name() -> None:
    """Refuse a request with a foreign Host header, which a web page may have sent by DNS rebinding."""
    if is_foreign(request.host):
        raise BadRequest("Host: expected the loopback address on which this API listens")


def _log(response: Response) -> Response:
    """Log changes at INFO, reads at DEBUG. Refused changes, which anyone can send, are at DEBUG, too, beyond a few.

    The response has the request id of the log line.
    """
    level = logging.DEBUG if request.method in ("GET", "HEAD", "OPTIONS") else logging.INFO
    if level == logging.INFO and 400 <= response.status_code < 500:
        refusals: Refusals = current_app.extensions[_REFUSALS]
        level = logging.INFO if refusals.is_shown(str(response.status_code)) else logging.DEBUG
    took_s = time.monotonic() - g.begin_s
    LOG.log(level, "%s %r: %d in %.1f ms", request.method[:20], request.path[:200], response.status_code, 1000 * took_s)
    _count(response.status_code, took_s)
    response.headers[HTTP_RESP_HEADER_REQUEST_ID] = context.request_id()
    versions.state_version(response)
    return response


def _count(status: int, took_s: float) -> None:
    instruments: Instruments = current_app.extensions[_INSTRUMENTS]
    operation = request.url_rule.endpoint if request.url_rule is not None else _NO_OPERATION
    instruments.count(table.REQUESTS, operation, str(status))
    instruments.observe(table.REQUEST_TIME, took_s, operation)
    if "error_code" in g:
        instruments.count(table.API_ERRORS, g.error_code)
