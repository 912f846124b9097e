"""`fpga_pool.wsgi.metrics:application`: the metrics of all processes that serve `fpga_pool.wsgi.api`, for Prometheus.

These processes record in the directory that the environment variable PROMETHEUS_MULTIPROC_DIR names.  Serve the
application separately, at an address of the management network, as it does not authenticate clients.
"""

from fpga_pool.cli.daemons.process import complain
from fpga_pool.metrics.instruments import recorded_by_all
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.wsgi import FAILED

try:
    application = recorded_by_all()
except InvalidInput as error:
    raise SystemExit(complain("fpga_pool.wsgi.metrics", error, FAILED)) from None
