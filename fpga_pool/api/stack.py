"""The complete WSGI application: the API, its health check, and the usual middleware of OpenStack services."""

import re
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import WSGIApplication

from oslo_config import cfg
from oslo_middleware import cors
from oslo_middleware.healthcheck import ConfigInvalid, Healthcheck
from oslo_middleware.healthcheck import opts as healthcheck_opts
from oslo_middleware.healthcheck.pluginbase import HealthcheckBaseExtension, HealthcheckResult
from oslo_middleware.http_proxy_to_wsgi import HTTPProxyToWSGI
from oslo_middleware.request_id import HTTP_RESP_HEADER_REQUEST_ID
from stevedore.named import NamedExtensionManager
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from fpga_pool.api import versions
from fpga_pool.api.app import create_app
from fpga_pool.api.http.server import closed_to_pages
from fpga_pool.api.policies import make_enforcer
from fpga_pool.conf.catalogue import private_key
from fpga_pool.conf.opts import check_values, wrong_values_named
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.tracing import is_profiled
from fpga_pool.rpc.transport import MessagingError

HEALTHCHECK_GROUP = "healthcheck"
#: Key of the scheduler, which the health check calls, in the settings of the middleware.
_SCHEDULER = "scheduler"
#: Lifetime of a health result, in seconds. Callers are unauthenticated, so all share one result.
_AGE_S = 1.0
#: Headers that scripts of other origins may send (and _EXPOSED: read), if [cors] allows their origin.
_ALLOWED = ["X-Auth-Token", "X-Openstack-Request-Id", versions.HEADER, "If-Match", "If-None-Match"]
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_EXPOSED = [HTTP_RESP_HEADER_REQUEST_ID, versions.HEADER, "Location", "ETag"]


def _set_defaults(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(healthcheck_opts.HEALTHCHECK_OPTS, HEALTHCHECK_GROUP)
    conf.set_default("backends", ["fpga_pool"], HEALTHCHECK_GROUP)
    cors.set_defaults(allow_headers=_ALLOWED, expose_headers=_EXPOSED)


def api_identity(conf: cfg.ConfigOpts) -> Identity:
    """Return the identity with which this process signs its calls to schedulers."""
    return Identity(Role.API, socket.gethostname(), private_key("[api] key", conf.api.key))


def make_application(
    conf: cfg.ConfigOpts, scheduler: SchedulerAPI, *, keystone: bool, instruments: Instruments | None = None
) -> WSGIApplication:
    """Return the configured application; without `keystone` it must listen on loopback only.

    Raises InvalidInput, which names the invalid option, also for options of the libraries that it uses.
    """
    with wrong_values_named(conf):
        application = _make(conf, scheduler, keystone=keystone, instruments=instruments)
    check_values(conf)  # including options that the libraries read later
    return application


def _make(
    conf: cfg.ConfigOpts, scheduler: SchedulerAPI, *, keystone: bool, instruments: Instruments | None
) -> WSGIApplication:
    _set_defaults(conf)
    app = create_app(
        scheduler,
        max_batch_jobs=conf.scheduler.max_batch_jobs,
        enforcer=make_enforcer(conf),
        keystone=keystone,
        instruments=instruments,
    )
    inner: WSGIApplication = app.wsgi_app
    if keystone:
        # Imported only if needed, as it loads Keystone's client.
        from fpga_pool.api.tokens import authenticated

        inner = authenticated(inner, conf)
    if is_profiled(conf):
        from osprofiler.web import WsgiMiddleware

        inner = WsgiMiddleware(inner)
    checked = DispatcherMiddleware(inner, _beside(conf, scheduler, instruments, keystone=keystone))
    # Middleware is added only if configured, as each layer processes every request.
    shared = cors.CORS(checked, conf)
    _check_origins(shared.allowed_origins)
    served: WSGIApplication = shared if shared.allowed_origins else checked
    proxied = HTTPProxyToWSGI(served, conf)
    return proxied if conf.oslo_middleware.enable_proxy_headers_parsing else served


def _check_origins(origins: Iterable[str]) -> None:
    """Raise InvalidInput for an origin that no browser sends, as it would silently have no effect."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise InvalidInput(
                "[cors] allowed_origin: expected * or PROTOCOL://HOST[:PORT] in small letters, such as "
                f"https://horizon.example.com, found {origin!r}"
            )


def _beside(
    conf: cfg.ConfigOpts, scheduler: SchedulerAPI, instruments: Instruments | None, *, keystone: bool
) -> dict[str, WSGIApplication]:
    """Return the applications that are served without authentication, by path, as load balancers have no token."""
    health = _health(conf)
    health.conf[_SCHEDULER] = scheduler
    if keystone:
        return {"/healthcheck": health}
    made = {"/healthcheck": health} | ({"/metrics": instruments.application()} if instruments else {})
    return {path: closed_to_pages(application) for path, application in made.items()}


def _health(conf: cfg.ConfigOpts) -> Healthcheck:
    known = set(NamedExtensionManager(Healthcheck.NAMESPACE, ()).entry_points_names())
    if unknown := set(conf.healthcheck.backends) - known:  # the library would ignore it
        raise InvalidInput(
            f"[healthcheck] backends: expected some of {', '.join(sorted(known))}, found {min(unknown)!r}"
        )
    try:
        return Healthcheck(None, conf)
    except ConfigInvalid as error:
        raise InvalidInput(f"[healthcheck] backends: {error}") from None
    except cfg.Error:
        raise
    except ValueError as error:
        raise InvalidInput(f"[healthcheck] allowed_source_ranges: {error}") from None


class PoolCheck(HealthcheckBaseExtension):
    """The check of `/healthcheck`: whether a scheduler, the message broker and the database respond."""

    def __init__(self, oslo_conf: cfg.ConfigOpts, conf: dict[str, Any]) -> None:
        super().__init__(oslo_conf, conf)
        self._asking = threading.Lock()
        self._found: HealthcheckResult | None = None
        self._found_s = 0.0

    def healthcheck(self, server_port: int) -> HealthcheckResult:
        """Return the recent health of the pool; the reason names the part that did not respond."""
        found = self._found
        if found is not None and not self._asking.acquire(blocking=False):
            return found
        if found is None:
            self._asking.acquire()
        try:
            if self._found is None or time.monotonic() - self._found_s > _AGE_S:
                self._found, self._found_s = self._ask(), time.monotonic()
            return self._found
        finally:
            self._asking.release()

    def _ask(self) -> HealthcheckResult:
        # Anyone can read the reason; names and messages are in the details, which operators have to enable.
        try:
            name = self.conf[_SCHEDULER].health()
        except MessagingError:
            return HealthcheckResult(False, "no scheduler answers: none runs, or the message broker is unreachable")
        except FpgaPoolError as error:
            return HealthcheckResult(False, f"the scheduler reports {error.code}", details=str(error))
        return HealthcheckResult(True, "a scheduler answers and reads the database", details=name)
