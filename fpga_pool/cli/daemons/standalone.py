"""`fpga-pool-standalone`: the embedded pool with its REST API on loopback."""

import contextlib
import signal
import sys
import threading
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log

from fpga_pool.api.app import create_app
from fpga_pool.api.server import ApiServer
from fpga_pool.conf.opts import register_opts
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.services.embedded import StandalonePool

CLI_OPTS = [
    cfg.StrOpt("state-dir", help="Same as [standalone] state_dir."),
    cfg.StrOpt("catalogue", help="Same as [standalone] catalogue."),
    cfg.IntOpt("hosts", min=1, help="Same as [standalone] hosts."),
    cfg.PortOpt("port", min=0, help="Same as [api] port."),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return 0, 1 where the pool could not start, 2 for wrong usage."""
    try:
        conf = configure(sys.argv[1:] if argv is None else argv)
    except (cfg.Error, ValueError) as error:
        print(f"fpga-pool-standalone: {error}", file=sys.stderr)
        return 2
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        pool = StandalonePool(conf)
        app = create_app(pool.scheduler_api, max_batch_jobs=conf.scheduler.max_batch_jobs)
        api = ApiServer(app, conf.api.host, conf.api.port)
        with contextlib.ExitStack() as running:
            running.callback(pool.stop)
            pool.start()
            url = api.start()
            running.callback(api.stop)
            print(f"fpga-pool-standalone: ready on {url}", flush=True)
            ended.wait()
    except (FpgaPoolError, OSError) as error:
        print(f"fpga-pool-standalone: {error}", file=sys.stderr)
        return 1
    return 0


def configure(argv: Sequence[str]) -> cfg.ConfigOpts:
    """Return the configuration from files and the command line."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf.register_cli_opts(CLI_OPTS)
    log.register_options(conf)
    conf(list(argv), project="fpga_pool", prog="fpga-pool-standalone")
    for group, option in (
        ("standalone", "state_dir"),
        ("standalone", "catalogue"),
        ("standalone", "hosts"),
        ("api", "port"),
    ):
        if conf[option] is not None:
            conf.set_override(option, conf[option], group)
    log.setup(conf, "fpga_pool")
    return conf


if __name__ == "__main__":
    sys.exit(main())
