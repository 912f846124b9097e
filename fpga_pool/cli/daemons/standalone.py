"""`fpga-pool-standalone`: the embedded pool with its REST API on loopback."""

import contextlib
import signal
import sys
import threading
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log
from oslo_reports import opts as report_options

from fpga_pool.api.dashboard.routes import PREFIX
from fpga_pool.api.http.server import ApiServer
from fpga_pool.api.presence import ANNOUNCED_S, Presence
from fpga_pool.api.stack import make_application
from fpga_pool.cli.daemons.process import (
    FAILED,
    OK,
    WRONG_USAGE,
    begin_to_log,
    complain,
    freeze_long_lived_objects,
    instruments,
    report_on_request,
    serve_metrics,
    wakes_of_signals,
)
from fpga_pool.cli.roles import DESCRIPTIONS
from fpga_pool.conf.catalogue import server_tls
from fpga_pool.conf.opts import check_names, check_values, read_files, register_opts
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.services.embedded import StandalonePool

PROGRAM = "fpga-pool-standalone"
#: Default of [scheduler] host_timeout_s: hosts that are threads of the same process rarely have to show that they live.
HOST_TIMEOUT_S = 30.0

CLI_OPTS = [
    cfg.StrOpt("state-dir", help="Directory of all persistent state ([standalone] state_dir)."),
    cfg.StrOpt("catalogue", help="Catalogue file ([standalone] catalogue; default: the installed one)."),
    cfg.IntOpt("hosts", min=1, help="Number of hosts with simulated cards ([standalone] hosts; default: 3)."),
    cfg.PortOpt("port", min=0, help="Port of the REST API, 0 selects a free one ([api] port; default: 9511)."),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return 0, 1 if the pool could not start, or 2 for wrong usage."""
    try:
        conf = configure(sys.argv[1:] if argv is None else argv)
        tls = server_tls(conf, "api", "tls_cert", "tls_key")
        report_on_request(conf, PROGRAM)
    except (cfg.Error, ValueError, InvalidInput) as error:
        return complain(PROGRAM, error, WRONG_USAGE)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    arrived = wakes_of_signals()
    try:
        metrics = instruments(conf)
        pool = StandalonePool(conf, metrics)
        app = make_application(conf, pool.scheduler_api, keystone=False, instruments=metrics)
        api = ApiServer(app, conf.api.host, conf.api.port, tls=tls)
        with contextlib.ExitStack() as running:
            serve_metrics(conf, "standalone", metrics, running)
            api.bind()
            running.callback(pool.stop)
            running.callback(api.stop)
            pool.start()
            url = api.start()
            presence = Presence(pool.scheduler_api)
            presence.begin(ANNOUNCED_S)
            running.callback(presence.end)
            freeze_long_lived_objects()
            print(f"{PROGRAM}: ready on {url}\n{PROGRAM}: dashboard on {url}{PREFIX}", flush=True)
            while not ended.is_set():  # waiting for the event itself would miss a signal that comes just before
                arrived.recv(64)
    except (ValueError, InvalidInput) as error:
        return complain(PROGRAM, error, WRONG_USAGE)
    except (FpgaPoolError, OSError) as error:
        return complain(PROGRAM, error, FAILED)
    return OK


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Return the configuration from files and the command line."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf.register_cli_opts(CLI_OPTS)
    conf.set_default("host_timeout_s", HOST_TIMEOUT_S, "scheduler")
    log.register_options(conf)
    report_options.set_defaults(conf)
    read_files(conf, PROGRAM, argv, DESCRIPTIONS[PROGRAM])
    for group, option in (
        ("standalone", "state_dir"),
        ("standalone", "catalogue"),
        ("standalone", "hosts"),
        ("api", "port"),
    ):
        if conf[option] is not None:
            conf.set_override(option, conf[option], group)
    check_names(conf)
    check_values(conf)
    begin_to_log(conf)
    return conf


if __name__ == "__main__":
    sys.exit(main())
