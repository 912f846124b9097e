"""The WSGI application: resources, and what happens around each request."""

import logging
import time
from urllib.parse import urlsplit

from flask import Flask, Response, g, jsonify, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import BadRequest

from fpga_pool.api import errors
from fpga_pool.api import errors as context
from fpga_pool.api.batches import batches
from fpga_pool.api.gangs import gangs
from fpga_pool.api.inventory import functions, hosts, slots
from fpga_pool.api.server import is_loopback
from fpga_pool.api.tasks import tasks
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.rpc.scheduler_api import SchedulerAPI

LOG = logging.getLogger(__name__)

#: Enough for the largest batch that is accepted several times over, so that a larger one learns by how much.
MAX_BODY_BYTES = 32 * 2**20

VERSIONS = {"versions": [{"id": "v1.0", "status": "CURRENT", "links": [{"rel": "self", "href": "/v1/"}]}]}


def create_app(
    scheduler: SchedulerAPI,
    *,
    max_batch_jobs: int = PoolSettings().max_batch_jobs,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Flask:
    """Return the API of the pool that `scheduler` runs."""
    app = Flask("fpga_pool.api", static_folder=None)
    app.config.update(MAX_CONTENT_LENGTH=max_body_bytes, MAX_BATCH_JOBS=max_batch_jobs)
    # Lists are in the order of the pool, objects in that of their views.
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    context.provide_scheduler(app, scheduler)
    errors.handle_errors(app)
    app.before_request(_note_start)
    app.before_request(context.number)
    app.before_request(_require_loopback_name)
    app.before_request(context.identify)
    app.after_request(_log)
    app.add_url_rule("/", view_func=versions)
    for noun in (batches, gangs, tasks, slots, hosts, functions):
        app.register_blueprint(noun)
    return app


def versions() -> ResponseReturnValue:
    """List the versions of the API."""
    return jsonify(VERSIONS)


def _note_start() -> None:
    g.begin_s = time.monotonic()


def _require_loopback_name() -> None:
    """Refuse a request that came under a foreign name: a web page whose name was made to lead here."""
    name = urlsplit(f"//{request.host}").hostname
    if name is None or not is_loopback(name):
        raise BadRequest("Host: expected the loopback address on which this API listens")


def _log(response: Response) -> Response:
    """Log changes at INFO and reads at DEBUG.  The request id of the line is also in the response."""
    level = logging.DEBUG if request.method in ("GET", "HEAD", "OPTIONS") else logging.INFO
    took_ms = 1000 * (time.monotonic() - g.begin_s)
    who = context.request_id()
    LOG.log(level, "%s %r: %d in %.1f ms", request.method[:20], request.path[:200], response.status_code, took_ms)
    response.headers[context.REQUEST_ID_HEADER] = who
    return response
