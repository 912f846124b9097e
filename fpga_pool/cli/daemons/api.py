"""`fpga-pool-api`: the REST API; it is stateless, so several may run."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from oslo_config import cfg

from fpga_pool.api.http.server import ApiServer
from fpga_pool.api.presence import Presence
from fpga_pool.api.stack import api_identity, make_application
from fpga_pool.cli.daemons.process import attempt, connected, end_messages, instruments, run, serve_metrics
from fpga_pool.conf.catalogue import server_tls
from fpga_pool.conf.services import KEYSTONE
from fpga_pool.rpc.scheduler_api import SchedulerAPI


@contextmanager
def api(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Run the API of this configuration."""
    with ExitStack() as ends:
        identity, tls = api_identity(conf), server_tls(conf, "api", "tls_cert", "tls_key")
        messages = connected(conf)
        scheduler = SchedulerAPI(messages, identity)
        presence = Presence(scheduler)
        ends.callback(end_messages, [presence.end, messages.cleanup])
        keystone = conf.api.auth_strategy == KEYSTONE
        metrics = instruments(conf)
        app = make_application(conf, scheduler, keystone=keystone, instruments=metrics)
        serve_metrics(conf, "api", metrics, ends)
        listening = ApiServer(app, conf.api.host, conf.api.port, authenticates=keystone, tls=tls)
        url = listening.start()
        ends.callback(attempt, [listening.stop])
        presence.begin()
        yield f"API on {url}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool-api`."""
    return run("fpga-pool-api", api, argv)


if __name__ == "__main__":
    sys.exit(main())
