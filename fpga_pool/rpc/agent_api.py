"""Calls of the scheduler to an agent."""

from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.flavor import GuestTier, Tier
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.rpc.bounded import Caller
from fpga_pool.rpc.transport import AGENT_TOPIC, client


class AgentAPI:
    """Client side of the agents' RPC interface; one server per host, addressed by its name."""

    def __init__(self, transport: Any, timeout_s: float = 10.0) -> None:
        self._client = client(transport, AGENT_TOPIC, timeout_s)
        self._caller = Caller()
        self._timeout_s = timeout_s

    def execute(self, host: str, shard: str, epoch: int, commands: Sequence[Command]) -> list[Outcome]:
        """Execute commands in order; return the outcome of each when it is in the agent's journal.

        StaleEpoch if the agent knows a later owner of the shard; without commands the agent learns who owns it.
        """
        plain = to_plain(commands)
        call = self._client.prepare(server=host).call
        answer = self._caller.run(
            lambda: call({}, "execute", shard=shard, epoch=epoch, commands=plain), self._timeout_s
        )
        outcomes: list[Outcome] = read(list[Outcome], answer)
        return outcomes

    def tiers(self, host: str) -> list[GuestTier]:
        """Return the guests of a host that are in a tier."""
        call = self._client.prepare(server=host).call
        guests: list[GuestTier] = read(list[GuestTier], self._caller.run(lambda: call({}, "tiers"), self._timeout_s))
        return guests

    def set_tiers(self, host: str, tiers: Mapping[str, Tier]) -> None:
        """Change the tiers of guests of a host, by instance: all, or none and an error.

        NotFound for a guest that is in no tier there, Conflict where there is no room in its tier.
        """
        plain = to_plain(tiers)
        call = self._client.prepare(server=host).call
        self._caller.run(lambda: call({}, "set_tiers", tiers=plain), self._timeout_s)
