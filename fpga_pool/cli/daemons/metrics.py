"""The metrics of a service process, served over HTTP."""

from collections.abc import Iterable
from contextlib import ExitStack
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from oslo_config import cfg

from fpga_pool.api.server import HttpServer, is_foreign, is_loopback
from fpga_pool.cli.daemons.process import attempt
from fpga_pool.metrics.instruments import Instruments

#: Scrapes beyond this number wait: no number of them takes more of the process.
_THREADS = (2, 2)
#: A process at rest is woken this often by its server of metrics.
_TICK_S = 1.0


def instruments(conf: cfg.ConfigOpts) -> Instruments:
    """Return what counts the events of this process."""
    return Instruments(conf.metrics.max_projects)


def closed_to_pages(metrics: WSGIApplication) -> WSGIApplication:
    """Return the application, closed to web pages whose name was made to lead to this machine."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_foreign(environ.get("HTTP_HOST", "")):
            start_response("400 Bad Request", [("Content-Type", "text/plain")])
            return [b"Host: expected the loopback address on which these metrics are served\n"]
        return metrics(environ, start_response)

    return answer


def serve_metrics(conf: cfg.ConfigOpts, process: str, made: Instruments, ends: ExitStack) -> None:
    """Serve metrics until the end, if they are enabled; OSError names the port's option if it is taken."""
    if not conf.metrics.enabled:
        return
    option = f"{process}_port"
    metrics = made.application()
    server = HttpServer(
        closed_to_pages(metrics) if is_loopback(conf.metrics.host) else metrics,
        conf.metrics.host,
        conf.metrics[option],
        name="metrics",
        port_option=f"[metrics] {option}",
        threads=_THREADS,
        tick_s=_TICK_S,
    )
    server.start()
    ends.callback(attempt, [server.stop])
