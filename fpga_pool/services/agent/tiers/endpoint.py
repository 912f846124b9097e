"""The agent's side of its RPC interface as far as tiers go (`rpc.agent_api`)."""

from typing import Any

from fpga_pool.model.encoding import to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Tier
from fpga_pool.rpc.transport import TARGET, answers
from fpga_pool.services.agent.tiers.service import Tiers

Plain = dict[str, Any]


class TierEndpoint:
    """Tells of tiers, and changes them."""

    target = TARGET

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    @answers
    def tiers(self, context: Plain) -> list[Plain]:
        """See AgentAPI."""
        return [to_plain(guest) for guest in self._tiers.guests()]

    @answers
    def set_tiers(self, context: Plain, tiers: dict[str, Any]) -> None:
        """See AgentAPI."""
        try:
            wanted = {instance: Tier(tier) for instance, tier in tiers.items()}
        except ValueError as error:
            raise InvalidInput(f"set_tiers.tiers: {error}") from None
        self._tiers.set_tiers(wanted)
