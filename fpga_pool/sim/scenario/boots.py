"""Where virtual machines of a scenario boot: what Nova does with the pool's filter and weigher in a cloud."""

import numpy as np

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.links import wished_links
from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.model.pool.explaining import explain_host
from fpga_pool.model.pool.fitting import Fitting
from fpga_pool.model.pool.providers import Providers
from fpga_pool.model.transaction import Transaction


def pool_columns(tx: Transaction) -> PoolColumns:
    """Return the pool as whoever chooses a host for an instance sees it."""
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
