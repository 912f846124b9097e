"""Hosts of a scenario as their agents describe them, and the hosts that Nova would choose for an instance."""

from collections.abc import Iterator

import numpy as np

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.objects.links import NOT_LINKED, SlotLinks, read_enclosures, wished_links
from fpga_pool.model.objects.pool import CPU, SlotState
from fpga_pool.model.rules.instance.explaining import explain_host
from fpga_pool.model.rules.instance.fitting import Fitting
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers
from fpga_pool.model.transaction import Transaction
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


def pool_columns(tx: Transaction) -> PoolColumns:
    """Return the pool view that is used to choose a host for an instance."""
    hosts = tx.hosts()
    held = {lease.slot: lease for lease in tx.leases()}
    slots = []
    for slot in tx.slots():
        lease = held.get(slot.name)
        slots.append(
            (
                slot.host, slot.shard, slot.name.partition("/")[2], slot.card, slot.board, slot.kind, slot.links,
                str(slot.state), slot.function, str(lease.kind) if lease else "", lease.holder if lease else "",
                lease.revocable if lease else False, slot.drain_requested, 0,
            )
        )  # fmt: skip
    rows = [(host.name, host.shard, host.availability_zone, host.alive, 0) for host in hosts]
    return PoolColumns.of({tx.shard.name: 0}, rows, slots, (len(rows), len(slots)))


def explanations(pool: PoolColumns, catalogue: Catalogue, wanted: AcceleratorRequest, stay_s: float) -> dict[str, str]:
    """Return by host why it cannot take an instance now, its slots on any of its cards; "" where it can."""
    fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s)
    links, why = wished_links(wanted), {}
    for word in pool.hosts["name"].tolist():
        passes, reason = explain_host(fitting, pool.words[word], wanted.count, together=False, links=links)
        why[pool.words[word]] = "" if passes else reason
    return why


def hosts_by_cost(pool: PoolColumns, catalogue: Catalogue, wanted: AcceleratorRequest, stay_s: float) -> list[str]:
    """Return the hosts that can take an instance now, first the one whose slots cost the pool least, then by name."""
    fitting = Fitting(Providers.of(pool), catalogue, wanted.function, stay_s)
    able = [host for host, reason in explanations(pool, catalogue, wanted, stay_s).items() if not reason]
    names = [pool.words[word] for word in pool.hosts["name"].tolist()]

    def cost(host: str) -> float:
        of_host = np.flatnonzero(fitting.had & (pool.slot_host == names.index(host)))
        return float(np.sort(fitting.cost[of_host])[: wanted.count].sum())

    return sorted(able, key=lambda host: (cost(host), host))
