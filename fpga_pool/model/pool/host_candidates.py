"""The slots of each host that an instance could get for a function, with how they are linked.

Most hosts of a pool are alike: those whose slots are free, cost and are linked the same share one description, so that
what was found out about one of them holds for all.
"""

from functools import cached_property

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.links import slot_links
from fpga_pool.model.pool.columns import Bools
from fpga_pool.model.pool.linking import SlotCandidate
from fpga_pool.model.pool.providers import Providers

#: Slots of a host; their `card` and `provider` are numbers within the host.
SlotCandidates = tuple[SlotCandidate, ...]


class HostCandidates:
    """Looks hosts up by name; made for one request after the other, it computes what they ask for only."""

    def __init__(self, providers: Providers, had: Bools, cost: Floats) -> None:
        """`had` and `cost` are (S,): which slots can be had, and what that costs the pool."""
        self._providers = providers
        self._rows: Ints = np.flatnonzero(had)
        self._cost: Floats = np.ascontiguousarray(cost[self._rows], dtype=np.float64)
        self._alike: dict[bytes, SlotCandidates] = {}
        self._located: dict[str, tuple[SlotCandidates, int]] = {}

    def of(self, host: str) -> SlotCandidates:
        """Return the slots of a host that can be had: the same object for hosts that are alike."""
        return self.located(host)[0]

    def located(self, host: str) -> tuple[SlotCandidates, int]:
        """Return the same, and the row of the provider that has number 0 within the host."""
        found = self._located.get(host)
        if found is None:
            found = self._located[host] = self._found(host)
        return found

    def _found(self, host: str) -> tuple[SlotCandidates, int]:
        hosts = self._providers.hosts
        row = hosts.rows.get(host)
        if row is None:
            return (), 0
        begin, end = self._begin[row], self._begin[row + 1]
        known = self._bytes[begin * self._width : end * self._width]
        found = self._alike.get(known)
        if found is None:
            words = self._providers.pool.words
            found = self._alike[known] = tuple(
                SlotCandidate(str(card), provider, slot_links(words[links]), cost)
                for (card, provider, links, _), cost in zip(
                    self._facts[begin:end].tolist(), self._cost[begin:end].tolist(), strict=True
                )
            )
        return found, hosts.first_provider[row]

    @cached_property
    def _facts(self) -> Ints:
        """(N, 4) card and provider within the host, number of the word of the links, and the bits of the cost."""
        hosts, links = self._providers.hosts, self._providers.pool.slots["links"]
        columns = (hosts.card[self._rows], hosts.provider[self._rows], links[self._rows], self._cost.view(np.int64))
        return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int64))

    @cached_property
    def _bytes(self) -> bytes:
        return self._facts.tobytes()

    @cached_property
    def _width(self) -> int:
        width: int = self._facts.itemsize * self._facts.shape[1]
        return width

    @cached_property
    def _begin(self) -> list[int]:
        """Return where the slots of each host begin, and where the last ones end."""
        pool = self._providers.pool
        begin: list[int] = np.searchsorted(pool.slot_host[self._rows], np.arange(len(pool.hosts["name"]) + 1)).tolist()
        return begin
