"""`fpga-pool-api`: the REST API; it keeps nothing, so there may be several."""

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from oslo_config import cfg

from fpga_pool.api.app import create_app
from fpga_pool.api.server import ApiServer
from fpga_pool.cli.daemons.process import attempt, end_messages, run
from fpga_pool.conf.catalogue import private_key
from fpga_pool.rpc.identity import Identity
from fpga_pool.rpc.roles import Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import transport


@contextmanager
def api(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Run the API of this configuration."""
    with ExitStack() as ends:
        identity = Identity(Role.API, socket.gethostname(), private_key("[api] key", conf.api.key))
        messages = transport(conf)
        ends.callback(end_messages, [messages.cleanup])
        app = create_app(SchedulerAPI(messages, identity), max_batch_jobs=conf.scheduler.max_batch_jobs)
        listening = ApiServer(app, conf.api.host, conf.api.port)
        url = listening.start()
        ends.callback(attempt, [listening.stop])
        yield f"API on {url}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fpga-pool-api`."""
    return run("fpga-pool-api", api, argv)


if __name__ == "__main__":
    sys.exit(main())
