"""The life of a lease: HELD from its grant until it is released by its holder or revoked by a claim of higher rank.

That of an instance outlives a slot that fails: it is broken until the slot has its function again.
"""

from dataclasses import dataclass, replace

from fpga_pool.model.lifecycle.table import Rule, Table
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.pool import Lease, LeaseState


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased:
    """The holder needs the slot no more, or has lost it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBroken:
    """Its instance cannot use the slot: it has failed, or does not hold the function."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRestored:
    """Its instance can use the slot again."""


def _broken(lease: Lease, event: LeaseBroken, now_s: float) -> tuple[Lease, list[Action]]:
    return replace(lease, broken=event.reason), []


def _restored(lease: Lease, event: LeaseRestored, now_s: float) -> tuple[Lease, list[Action]]:
    return replace(lease, broken=""), []


def _released(lease: Lease, event: LeaseReleased, now_s: float) -> tuple[Lease, list[Action]]:
    return replace(lease, state=LeaseState.RELEASED, released_at=now_s), []


_RULES: dict[tuple[LeaseState, type], Rule[Lease]] = {
    (LeaseState.HELD, LeaseBroken): _broken,
    (LeaseState.HELD, LeaseRestored): _restored,
    (LeaseState.HELD, LeaseReleased): _released,
}

LEASE = Table[Lease]("lease", _RULES)
