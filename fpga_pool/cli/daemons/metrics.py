"""The metrics of a service process, served over HTTP."""

from contextlib import ExitStack

from oslo_config import cfg

from fpga_pool.api.server import HttpServer
from fpga_pool.cli.daemons.process import attempt
from fpga_pool.metrics.instruments import Instruments

#: Scrapes beyond this number wait: no number of them takes more of the process.
_THREADS = (2, 2)
#: A process at rest is woken this often by its server of metrics.
_TICK_S = 1.0


def instruments(conf: cfg.ConfigOpts) -> Instruments:
    """Return what counts the events of this process."""
    return Instruments(conf.metrics.max_projects)


def serve_metrics(conf: cfg.ConfigOpts, process: str, made: Instruments, ends: ExitStack) -> None:
    """Serve metrics until the end, if they are enabled; OSError names the port's option if it is taken."""
    if not conf.metrics.enabled:
        return
    option = f"{process}_port"
    server = HttpServer(
        made.application(),
        conf.metrics.host,
        conf.metrics[option],
        name="metrics",
        port_option=f"[metrics] {option}",
        threads=_THREADS,
        tick_s=_TICK_S,
    )
    server.start()
    ends.callback(attempt, [server.stop])
