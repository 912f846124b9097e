"""Hosts of a simulated pool."""

from dataclasses import dataclass, field

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages import AssignJob, Heartbeat, ObservedSlot
from fpga_pool.model.objects import SlotState


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHost:
    """One host as the pool would observe it at the start."""

    name: str
    egress_bps: float
    ingress_bps: float
    slots: tuple[ObservedSlot, ...]

    def heartbeat(self, at: float) -> Heartbeat:
        """Return what its agent would tell."""
        return Heartbeat(
            host=self.name,
            agent_id="simulated",
            boot=1,
            beat=1,
            at=at,
            egress_bps=self.egress_bps,
            ingress_bps=self.ingress_bps,
            data_address="",
            data_port=0,
            slots=self.slots,
            jobs=(),
        )


@dataclass(slots=True)
class SimulatedSlot:
    """A slot as its agent would keep it."""

    observed: ObservedSlot
    function: str
    queue: dict[str, AssignJob] = field(default_factory=dict)
    staged: set[str] = field(default_factory=set)
    running: AssignJob | None = None
    busy: bool = False
    #: It has failed, or its host has left: nothing happens there any more.
    dead: bool = False

    @property
    def host(self) -> str:
        """Name of its host."""
        return self.observed.slot.split("/")[0]


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
