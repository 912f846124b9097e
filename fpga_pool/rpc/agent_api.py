"""Calls of the scheduler to an agent."""

from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.flavor import GuestTier, Tier
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.objects.bitstreams import BitstreamInfo
from fpga_pool.rpc.bounded import Caller, signed_again
from fpga_pool.rpc.gathering import SignedClient
from fpga_pool.rpc.identity import Identity
from fpga_pool.rpc.tracing import current_ids
from fpga_pool.rpc.transport import AGENT_TOPIC

#: Timeout for reading the library of a host, whose caller waits.
POLL_S = 3.0


class AgentAPI:
    """Client side of the agents' RPC interface; one server per host, addressed by its name."""

    def __init__(self, transport: Any, identity: Identity, timeout_s: float = 10.0) -> None:
        self._client = SignedClient(transport, AGENT_TOPIC, identity, timeout_s)
        self._caller = Caller()
        self._timeout_s = timeout_s
        #: By host, the run of its agent for which calls are signed.
        self._runs: dict[str, str] = {}

    def _call(self, host: str, method: str, timeout_s: float | None = None, **arguments: Any) -> Any:
        """Call an agent; repeat the call if the agent was restarted."""
        plain: dict[str, Any] = to_plain(arguments)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return signed_again(
            lambda: self._signed_call(host, method, plain, timeout_s), lambda: self._runs.pop(host, None)
        )

    def _signed_call(self, host: str, method: str, plain: dict[str, Any], timeout_s: float) -> Any:
        run = self._runs.get(host)
        if run is None:
            _, run = self._caller.run(lambda: self._client.greet(host, timeout_s), timeout_s)
            self._runs[host] = run
        ids = current_ids()
        return self._caller.run(lambda: self._client.call(host, run, method, plain, ids, timeout=timeout_s), timeout_s)

    def execute(self, host: str, shard: str, epoch: int, commands: Sequence[Command]) -> list[Outcome]:
        """Execute commands in order; return the outcome of each when it is in the agent's journal.

        Raises StaleEpoch if the agent knows a later owner of the shard. A call without commands only tells the agent
        who owns the shard.
        """
        outcomes: list[Outcome] = read(
            list[Outcome], self._call(host, "execute", shard=shard, epoch=epoch, commands=commands)
        )
        return outcomes

    def bitstreams(self, host: str, board: str) -> list[BitstreamInfo]:
        """Return the bitstreams of the catalogue for a board in the library of a host."""
        found: list[BitstreamInfo] = read(list[BitstreamInfo], self._call(host, "bitstreams", POLL_S, board=board))
        return found

    def tiers(self, host: str) -> list[GuestTier]:
        """Return the guests of a host that are in a tier."""
        guests: list[GuestTier] = read(list[GuestTier], self._call(host, "tiers"))
        return guests

    def set_tiers(self, host: str, tiers: Mapping[str, Tier]) -> None:
        """Change the tiers of guests of a host, by instance; if this raises an error, no tier is changed.

        Raises NotFound for a guest that is in no tier there, and Conflict if there is no room in its tier.
        """
        self._call(host, "set_tiers", tiers=tiers)
