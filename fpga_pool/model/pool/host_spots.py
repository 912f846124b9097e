"""The slots of each host that an instance could get for a function, with how they are linked.

Most hosts of a pool are alike: those whose slots are free, cost and are linked the same share one description, so that
what was found out about one of them holds for all.
"""

from functools import cached_property

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.links import slot_links
from fpga_pool.model.pool.columns import Bools
from fpga_pool.model.pool.linking import Spot
from fpga_pool.model.pool.providers import Providers

#: Slots of a host; their `card` and `provider` are numbers within the host.
Spots = tuple[Spot, ...]


class HostSpots:
    """Looks hosts up by name; made for one request after the other, it computes what they ask for only."""

    def __init__(self, providers: Providers, had: Bools, cost: Floats) -> None:
        """`had` and `cost` are (S,): which slots can be had, and what that costs the pool."""
        self._providers = providers
        self._rows: Ints = np.flatnonzero(had)
        self._cost: Floats = np.ascontiguousarray(cost[self._rows], dtype=np.float64)
        self._alike: dict[bytes, Spots] = {}

    def of(self, host: str) -> Spots:
        """Return the slots of a host that can be had: the same object for hosts that are alike."""
        row = self._row.get(host)
        if row is None:
            return ()
        begin, end = self._begin[row], self._begin[row + 1]
        known = self._facts[begin:end].tobytes()
        found = self._alike.get(known)
        if found is None:
            words = self._providers.pool.words
            found = self._alike[known] = tuple(
                Spot(str(card), provider, slot_links(words[links]), cost)
                for (card, provider, links, _), cost in zip(
                    self._facts[begin:end].tolist(), self._cost[begin:end].tolist(), strict=True
                )
            )
        return found

    def first_provider(self, host: str) -> int:
        """Return the row of the provider that has number 0 within its host."""
        return self._providers.of_host[host].start

    @cached_property
    def _facts(self) -> Ints:
        """(N, 4) card and provider within the host, number of the word of the links, and the bits of the cost."""
        providers = self._providers
        pool = providers.pool
        rows, hosts = self._rows, np.arange(len(pool.hosts["name"]))
        host = pool.slot_host[rows]
        # Slots are in the order of their hosts, and so are providers and the cards that are numbered here.
        card = np.unique(pool.slot_host * (len(pool.words) + 1) + pool.slots["card"], return_inverse=True)[1]
        host_of_card = np.zeros(card.max(initial=-1) + 1, dtype=np.int64)
        host_of_card[card] = pool.slot_host
        first_card = np.searchsorted(host_of_card, hosts)
        first_provider = np.searchsorted(pool.slot_host[providers.slot], hosts)
        columns = (
            card[rows] - first_card[host],
            providers.of_slot[rows] - first_provider[host],
            pool.slots["links"][rows],
            self._cost.view(np.int64),
        )
        return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int64))

    @cached_property
    def _begin(self) -> list[int]:
        """Return where the slots of each host begin, and where the last ones end."""
        pool = self._providers.pool
        begin: list[int] = np.searchsorted(pool.slot_host[self._rows], np.arange(len(pool.hosts["name"]) + 1)).tolist()
        return begin

    @cached_property
    def _row(self) -> dict[str, int]:
        pool = self._providers.pool
        return {pool.words[word]: row for row, word in enumerate(pool.hosts["name"].tolist())}
