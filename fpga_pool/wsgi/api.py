"""`fpga_pool.wsgi.api:application`: the REST API under any WSGI server, such as uWSGI, gunicorn or mod_wsgi.

It reads the same configuration files as `fpga-pool-api`, or those in the environment variable
OS_FPGA_POOL_CONFIG_FILES, separated by semicolons.  Address, port and TLS are options of the WSGI server.
"""

import os
from wsgiref.types import WSGIApplication

from oslo_config import cfg

from fpga_pool.api.presence import announced
from fpga_pool.api.stack import api_identity, make_application
from fpga_pool.cli.daemons.process import complain, configure
from fpga_pool.conf.services import NOAUTH
from fpga_pool.metrics.instruments import check_directory
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError, transport
from fpga_pool.wsgi import FAILED

CONFIG_FILES = "OS_FPGA_POOL_CONFIG_FILES"


def make() -> WSGIApplication:
    """Return the application; if it cannot be created, print the reason in one line and exit, like other processes."""
    try:
        return _make()
    except (cfg.Error, ValueError, FpgaPoolError, MessagingError, OSError) as error:
        raise SystemExit(complain("fpga_pool.wsgi.api", error, FAILED)) from None


def _make() -> WSGIApplication:
    """Return the configured application; connections are opened at the first request, after the server has forked."""
    check_directory()
    files = [path for path in os.environ.get(CONFIG_FILES, "").split(";") if path]
    conf = configure(cfg.CONF, "fpga-pool-api", [f"--config-file={path}" for path in files], plans=False)
    if conf.api.auth_strategy == NOAUTH:
        raise InvalidInput(
            f"[api] auth_strategy: {NOAUTH} is refused under a WSGI server, whose address is not known to be a "
            "loopback one; use keystone, or fpga-pool-api"
        )
    scheduler = SchedulerAPI(transport(conf), api_identity(conf))
    return announced(make_application(conf, scheduler, keystone=True), scheduler)


application = make()
