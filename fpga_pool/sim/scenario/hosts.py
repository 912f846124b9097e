"""The hosts of a scenario, as their agents would describe them."""

from collections.abc import Iterator

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.links import NOT_LINKED, SlotLinks, read_enclosures
from fpga_pool.model.messages import ObservedSlot
from fpga_pool.model.objects import CPU, SlotState
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.scenario.tables import HostTable, Scenario


def simulated_hosts(scenario: Scenario, catalogue: Catalogue) -> list[SimulatedHost]:
    """Return all hosts; InvalidInput names an enclosure that cannot be."""
    hosts = []
    for table in scenario.hosts:
        try:
            hosts += [_host(table, name, catalogue) for name in table.names]
        except InvalidInput as error:
            raise InvalidInput(f"hosts.{table.name}: enclosures: {error}") from None
    return hosts


def _host(table: HostTable, name: str, catalogue: Catalogue) -> SimulatedHost:
    workers = (
        ObservedSlot(
            slot=f"{name}/{CPU}/worker{number}", card=CPU, region=f"worker{number}", board=CPU, kind=CPU,
            state=SlotState.EMPTY,
        )
        for number in range(table.cpu_workers)
    )  # fmt: skip
    return SimulatedHost(
        name=name,
        egress_bps=table.egress_mbps * 1e6,
        ingress_bps=table.ingress_mbps * 1e6,
        slots=(*_slots(table, name, catalogue), *workers),
        gang_processors=table.gang_processors,
    )


def _slots(table: HostTable, name: str, catalogue: Catalogue) -> Iterator[ObservedSlot]:
    if not table.board:
        return
    cards = [f"sim{number}" for number in range(table.cards)]
    all_linked = [f"box {table.links} {','.join(cards)}"] if table.cards > 1 and table.links != NOT_LINKED else []
    links = read_enclosures(table.enclosures or all_linked, table.slot_links, cards)
    kinds = catalogue.board(table.board).slots
    for card in cards:
        for number, kind in enumerate(kinds):
            yield ObservedSlot(
                slot=f"{name}/{card}/slot{number}",
                card=card,
                region=f"slot{number}",
                board=table.board,
                kind=kind,
                state=SlotState.EMPTY,
                links=str(SlotLinks(card=links[card], slots=len(kinds), position=number)),
            )
