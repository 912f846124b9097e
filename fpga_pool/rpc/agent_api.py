"""What the scheduler tells an agent."""

from collections.abc import Sequence
from typing import Any

from fpga_pool.model.encoding import to_plain
from fpga_pool.model.messages import Command, Outcome
from fpga_pool.rpc.bounded import Caller
from fpga_pool.rpc.transport import AGENT_TOPIC, client, read_all


class AgentAPI:
    """Client side of the agents' RPC interface; one server per host, addressed by its name.

    Version history
    ---------------
    1.0
        Commands, in the name of a shard's owner.
    1.1
        EvictJob; AssignJob says what is done already.
    """

    def __init__(self, transport: Any, timeout_s: float = 10.0) -> None:
        self._client = client(transport, AGENT_TOPIC, timeout_s, version="1.1", version_cap="1.1")
        self._caller = Caller()
        self._timeout_s = timeout_s

    def execute(self, host: str, shard: str, epoch: int, commands: Sequence[Command]) -> list[Outcome]:
        """Have commands executed, in order; an outcome for each is returned once it is in the agent's journal.

        StaleEpoch if the agent knows a later owner of the shard; without commands the agent learns who owns it.
        """
        plain = [to_plain(item) for item in commands]
        call = self._client.prepare(server=host).call
        answer = self._caller.run(
            lambda: call({}, "execute", shard=shard, epoch=epoch, commands=plain), self._timeout_s
        )
        return read_all(Outcome, answer)
