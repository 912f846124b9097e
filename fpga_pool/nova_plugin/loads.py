"""How loaded the hosts of the pool are: a float32 table that follows the snapshots of the pool by what changed.

Only the slots of hosts with a change are counted again; a table is never changed, so threads may share it.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.cluster.scorer import Floats32
from fpga_pool.core.types import Ints
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers

#: Columns: slots in service, those that compute, and those with a lease; then those that are held until their holder
#: ends, by function.  The last column is for functions that are not in the catalogue.
IN_SERVICE, BUSY, LEASED, HELD = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """A table of one snapshot."""

    providers: Providers
    functions: Sequence[str]
    #: (H, HELD + functions + 1) counts of slots, in the order of the hosts.
    counts: Floats32
    #: How many hosts were counted for it, beyond what was known from the table before.
    counted: int


class LoadTables:
    """Keeps the last table; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Loads | None = None

    def of(self, providers: Providers, functions: Sequence[str]) -> Loads:
        """Return the table of a snapshot; `functions` are those of the catalogue."""
        with self._lock:
            last = self._last
            if last is None or last.providers is not providers or last.functions != functions:
                last = self._last = _loads(providers, functions, last)
            return last


def _loads(providers: Providers, functions: Sequence[str], before: Loads | None) -> Loads:
    pool = providers.pool
    # The providers of a snapshot with the same slots in the same rows have the array of the one before.
    if before is not None and before.providers.of_slot is providers.of_slot and before.functions == functions:
        hosts = _changed(before.providers.pool, pool)
        counts = before.counts.copy()
    else:
        hosts = np.arange(len(pool.hosts["name"]))
        counts = np.zeros((len(hosts), HELD + len(functions) + 1), dtype=np.float32)
    if len(hosts):
        counts[hosts] = _counted(pool, functions, hosts)
    return Loads(providers, functions, counts, len(hosts))


def _changed(before: PoolColumns, now: PoolColumns) -> Ints:
    """Return the hosts of which the row, or that of a slot, is another one."""
    hosts = before.hosts["changed_in"] != now.hosts["changed_in"]
    hosts[now.slot_host[before.slots["changed_in"] != now.slots["changed_in"]]] = True
    return np.flatnonzero(hosts)


def _counted(pool: PoolColumns, functions: Sequence[str], hosts: Ints) -> Floats32:
    """Return (hosts, columns) the counts of these hosts, which are in order."""
    here = np.zeros(len(pool.hosts["name"]), dtype=bool)
    here[hosts] = True
    rows = np.flatnonzero(here[pool.slot_host])
    host, width = np.searchsorted(hosts, pool.slot_host[rows]), HELD + len(functions) + 1
    lease = pool.slots["lease"][rows]
    leased = lease != pool.numbers.get("", -1)
    held = leased & (pool.slots["revocable"][rows] == 0)
    column = np.full(len(pool.words), width - 1)
    known = [(pool.numbers[name], HELD + place) for place, name in enumerate(functions) if name in pool.numbers]
    for number, place in known:
        column[number] = place
    busy = pool.slots["state"][rows] == pool.numbers.get(SlotState.BUSY, -1)
    of_function = column[pool.slots["function"][rows]]
    parts = ((pool.in_service[rows], IN_SERVICE), (busy, BUSY), (leased, LEASED), (held, of_function[held]))
    cells = np.concatenate([host[mask] * width + place for mask, place in parts])
    counts = np.bincount(cells, minlength=len(hosts) * width).astype(np.float32)
    return counts.reshape(len(hosts), width)
