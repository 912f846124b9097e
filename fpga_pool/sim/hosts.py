"""Hosts of a simulated pool."""

from dataclasses import dataclass

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages import ObservedSlot
from fpga_pool.model.objects import SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHost:
    """One host as the pool would observe it at the start."""

    name: str
    egress_bps: float
    ingress_bps: float
    slots: tuple[ObservedSlot, ...]
    #: How many processors it gives to gangs.
    gang_processors: int = 0


def fresh_hosts(
    catalogue: Catalogue, board: str, *, hosts: int, cards: int, egress_bps: float, ingress_bps: float
) -> list[SimulatedHost]:
    """Return hosts like those of a new embedded pool: node-1, node-2 and so on, every slot empty."""
    return [
        SimulatedHost(
            name=f"node-{number}",
            egress_bps=egress_bps,
            ingress_bps=ingress_bps,
            slots=tuple(
                ObservedSlot(
                    slot=f"node-{number}/sim{card}/slot{region}",
                    card=f"sim{card}",
                    region=f"slot{region}",
                    board=board,
                    kind=kind,
                    state=SlotState.EMPTY,
                )
                for card in range(cards)
                for region, kind in enumerate(catalogue.board(board).slots)
            ),
        )
        for number in range(1, hosts + 1)
    ]
