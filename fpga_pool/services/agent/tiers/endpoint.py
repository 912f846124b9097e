"""The agent's side of its RPC interface as far as tiers go (`rpc.agent_api`)."""

from typing import Any

from fpga_pool.model.flavor import Tier
from fpga_pool.model.tiers import GuestTier
from fpga_pool.rpc.transport import TARGET, answers
from fpga_pool.services.agent.tiers.service import Tiers

Context = dict[str, Any]


class TierEndpoint:
    """Tells of tiers, and changes them."""

    target = TARGET

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    @answers
    def tiers(self, context: Context) -> list[GuestTier]:
        return self._tiers.guests()

    @answers
    def set_tiers(self, context: Context, tiers: dict[str, Tier]) -> None:
        self._tiers.set_tiers(tiers)
