"""The HTTP server of the API, in its own threads; metrics are served by the same one."""

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

#: More than requests that wait for changes (`rates`), so that those leave some.
_THREADS = 32
_BACKLOG = 128
#: How soon its accepting thread notices that it has to end.
_TICK_S = 0.1


def is_loopback(host: str) -> bool:
    """Return whether a name or address is a loopback one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_foreign(host_header: str) -> bool:
    """Return whether a request came under a name that is none of loopback: a web page can make its own lead there."""
    try:
        name = urlsplit(f"//{host_header}").hostname
    except ValueError:
        return True
    return name is None or not is_loopback(name)


def closed_to_pages(application: WSGIApplication) -> WSGIApplication:
    """Return the application, closed to web pages whose name was made to lead to this machine."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_foreign(environ.get("HTTP_HOST", "")):
            status = "400 Bad Request"
            headers, body = refusal(status, "Host: expected the loopback address on which this is served")
            start_response(status, headers)
            return [body]
        return application(environ, start_response)

    return answer


class _Server(wsgi.Server):
    """Gives requests to threads when they are complete (`reception`)."""

    ConnectionClass = ReceivedConnection

    _connections: Any  # cheroot's stubs do not say what it is

    def __init__(self, limits: ReceptionLimits, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self.reception: Reception | None = None

    def prepare(self) -> None:
        super().prepare()
        self._connections.close()  # it listens not yet
        self._connections = self.reception = Reception(self, self._limits)


class HttpServer:
    """Serves a WSGI application; `start` and `stop` are called once each.

    `name` is for the log, `port_option` for errors; `threads` is the number of answering ones; within
    `tick_s` the server notices that it has to end; with `tls` it speaks https.
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
        """Where it listens, once started."""
        host, port = self._server.bind_addr[:2]
        scheme = "https" if self._server.ssl_adapter else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def bind(self) -> None:
        """Take the address, so that connections queue until `start`; OSError if it is in use."""
        try:
            self._server.prepare()
        except OSError as error:
            host, port = self._server.bind_addr[:2]
            raise OSError(f"{self._port_option}: {host} port {port} is in use or cannot be bound: {error}") from error
        self._bound = True

    def start(self) -> str:
        """Listen and serve; return the URL, or raise OSError if the address cannot be bound."""
        if not self._bound:
            self.bind()
        self._thread.start()
        LOG.info("%s: listening on %s", self._name, self.url)
        return self.url

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let requests under way end and close."""
        self._server.shutdown_timeout = timeout_s
        self._server.stop()
        if self._thread.ident is None:  # bound and never started
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise ServiceUnavailable(f"{self._name}: did not stop within {timeout_s:g} s")


class ApiServer(HttpServer):
    """Serves the API; one that does not authenticate, on a loopback address only."""

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
