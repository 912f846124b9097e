"""The HTTP server of the API and of metrics, which runs in separate threads."""

import ipaddress
import logging
import ssl
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from cheroot import wsgi

from fpga_pool.api.http.reception import ReceivedConnection, Reception, ReceptionLimits, Tls
from fpga_pool.api.http.traffic import refusal
from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable

LOG = logging.getLogger(__name__)

DEFAULT_PORT = 9511

#: More than the requests that may wait for changes (`rates`), so that some threads remain for others.
_THREADS = 32
_BACKLOG = 128
#: Interval in which the accepting thread checks whether connections are overdue, in seconds.
_TICK_S = 1.0


def is_loopback(host: str) -> bool:
    """Return whether a name or address is a loopback one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_foreign(host_header: str) -> bool:
    """Return whether a Host header names no loopback address, as in DNS rebinding attacks by web pages."""
    try:
        name = urlsplit(f"//{host_header}").hostname
    except ValueError:
        return True
    return name is None or not is_loopback(name)


def closed_to_pages(application: WSGIApplication) -> WSGIApplication:
    """Return the application, protected from web pages whose name resolves to this machine (DNS rebinding)."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_foreign(environ.get("HTTP_HOST", "")):
            status = "400 Bad Request"
            headers, body = refusal(status, "Host: expected the loopback address on which this is served")
            start_response(status, headers)
            return [body]
        return application(environ, start_response)

    return answer


class _Server(wsgi.Server):
    """Passes requests to worker threads when they are complete (see `reception`)."""

    ConnectionClass = ReceivedConnection

    _connections: Any  # missing in cheroot's stubs

    def __init__(self, limits: ReceptionLimits, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self.reception: Reception | None = None

    def prepare(self) -> None:
        super().prepare()
        self._connections.close()  # the default manager, which is not listening yet
        self._connections = self.reception = Reception(self, self._limits)


class HttpServer:
    """Serves a WSGI application; `start` and `stop` are called once each.

    `name` is used in the log, `port_option` in errors. `threads` is the number of worker threads. Every `tick_s`,
    the server ends connections that are overdue. With `tls` it serves https.
    """

    def __init__(
        self,
        app: WSGIApplication,
        host: str,
        port: int,
        limits: ReceptionLimits | None = None,
        *,
        name: str,
        port_option: str,
        threads: int,
        tick_s: float = _TICK_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._name, self._port_option = name, port_option
        self._server = _Server(
            limits or ReceptionLimits(),
            (host, port),
            app,
            numthreads=threads,
            max=threads,
            request_queue_size=_BACKLOG,
            server_name="fpga_pool",
        )
        self._server.ssl_adapter = None if tls is None else Tls(tls)
        self._server.expiration_interval = tick_s
        self._server.error_log = _log  # type: ignore[method-assign]
        self._bound = False
        self._thread = threading.Thread(target=self._server.serve, name=name, daemon=True)

    @property
    def url(self) -> str:
        """URL on which the server listens, once started."""
        host, port = self._server.bind_addr[:2]
        scheme = "https" if self._server.ssl_adapter else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def bind(self) -> None:
        """Bind the address, so that connections queue until `start`. Raises OSError if it is in use."""
        try:
            self._server.prepare()
        except OSError as error:
            host, port = self._server.bind_addr[:2]
            raise OSError(f"{self._port_option}: {host} port {port} is in use or cannot be bound: {error}") from error
        self._bound = True

    def start(self) -> str:
        """Start to listen and serve; return the URL. Raises OSError if the address cannot be bound."""
        if not self._bound:
            self.bind()
        self._thread.start()
        LOG.info("%s: listening on %s", self._name, self.url)
        return self.url

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the server after requests in progress have ended."""
        self._server.shutdown_timeout = timeout_s
        self._server.stop()
        if self._thread.ident is None:  # bound but never started
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise ServiceUnavailable(f"{self._name}: did not stop within {timeout_s:g} s")


class ApiServer(HttpServer):
    """Serves the API; without authentication only on a loopback address."""

    def __init__(
        self,
        app: WSGIApplication,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        limits: ReceptionLimits | None = None,
        *,
        authenticates: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not authenticates and not is_loopback(host):
            raise InvalidInput(
                f"[api] host: {host!r} is refused because without authentication the API listens on loopback only; "
                "expected 127.0.0.1, ::1 or localhost"
            )
        super().__init__(app, host, port, limits, name="API", port_option="[api] port", threads=_THREADS, tls=tls)


def _log(msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
    LOG.log(level, "%s", msg, exc_info=traceback)
