"""The agent's side of its RPC interface (`rpc.agent_api`)."""

from typing import Any

from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.rpc.transport import TARGET, answers
from fpga_pool.services.agent.service import AgentService


class AgentEndpoint:
    """Takes commands."""

    target = TARGET

    def __init__(self, service: AgentService) -> None:
        self._service = service

    @answers
    def execute(self, context: dict[str, Any], shard: str, epoch: int, commands: list[Command]) -> list[Outcome]:
        return self._service.execute(shard, epoch, commands)
