"""The check of `/healthcheck`: a scheduler answers, and so do the message broker and the database behind it."""

from typing import Any

from oslo_config import cfg
from oslo_middleware.healthcheck.pluginbase import HealthcheckBaseExtension, HealthcheckResult

from fpga_pool.api.stack import api_identity
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import MessagingError, transport

#: A load balancer asks often and does not wait long.
TIMEOUT_S = 3.0


class PoolCheck(HealthcheckBaseExtension):
    """Asks any scheduler to read the database."""

    def __init__(self, oslo_conf: cfg.ConfigOpts, conf: dict[str, Any]) -> None:
        super().__init__(oslo_conf, conf)
        self._scheduler = SchedulerAPI(transport(oslo_conf), api_identity(oslo_conf), TIMEOUT_S, any_server=True)

    def healthcheck(self, server_port: int) -> HealthcheckResult:
        """Return whether the pool answers; the reason names the part that does not."""
        try:
            name = self._scheduler.health()
        except MessagingError:
            return HealthcheckResult(False, "no scheduler answers: none runs, or the message broker is unreachable")
        except FpgaPoolError as error:
            return HealthcheckResult(False, f"the scheduler reports: {error.args[0] if error.args else error.code}")
        return HealthcheckResult(True, f"scheduler {name} answers and reads the database")
