"""The agent's side of its RPC interface (`rpc.agent_api`)."""

from typing import Any

import oslo_messaging as messaging

from fpga_pool.model.encoding import to_plain
from fpga_pool.model.exceptions import FpgaPoolError
from fpga_pool.model.messages import Command
from fpga_pool.rpc.transport import read_all
from fpga_pool.services.agent.service import AgentService

Plain = dict[str, Any]


class AgentEndpoint:
    """Takes commands."""

    target = messaging.Target(version="1.0")

    def __init__(self, service: AgentService) -> None:
        self._service = service

    @messaging.expose
    @messaging.expected_exceptions(FpgaPoolError)
    def execute(self, context: Plain, commands: list[Plain]) -> list[Plain]:
        """See AgentAPI."""
        return [to_plain(outcome) for outcome in self._service.execute(read_all(Command, commands))]
