"""The agent's side of its RPC interface (`rpc.agent_api`)."""

from typing import Any

from fpga_pool.model.encoding import to_plain
from fpga_pool.model.messages import Command
from fpga_pool.rpc.transport import TARGET, answers, read_all
from fpga_pool.services.agent.service import AgentService

Plain = dict[str, Any]


class AgentEndpoint:
    """Takes commands."""

    target = TARGET

    def __init__(self, service: AgentService) -> None:
        self._service = service

    @answers
    def execute(self, context: Plain, shard: str, epoch: int, commands: list[Plain]) -> list[Plain]:
        """See AgentAPI."""
        outcomes = self._service.execute(shard, epoch, read_all(Command, commands))
        return [to_plain(outcome) for outcome in outcomes]
