"""The life of a lease: HELD from its grant until it is released by its holder or revoked by a claim of higher rank."""

from dataclasses import dataclass, replace

from fpga_pool.model.lifecycle.table import Rule, Table
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.pool import Lease, LeaseState


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased:
    """The holder needs the slot no more, or has lost it."""


def _released(lease: Lease, event: LeaseReleased, now_s: float) -> tuple[Lease, list[Action]]:
    return replace(lease, state=LeaseState.RELEASED, released_at=now_s), []


_RULES: dict[tuple[LeaseState, type], Rule[Lease]] = {(LeaseState.HELD, LeaseReleased): _released}

LEASE = Table[Lease]("lease", _RULES)
