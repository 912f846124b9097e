"""What an agent tells of the tiers of its host."""

from fpga_pool.model.codec import Message, Number
from fpga_pool.model.flavor import Tier


class GuestTier(Message, frozen=True, kw_only=True):
    """One guest that is in a tier."""

    instance: str
    name: str
    #: What its owner asks for; None = it was put into a tier without asking.
    wanted: Tier | None
    tier: Tier
    #: The pCPU of each vCPU.
    pcpus: tuple[int, ...]
    #: Share of its pCPU that each vCPU used lately, 0 to 1; empty = not measured yet.
    usage: tuple[Number, ...]
