"""The pool's slots as Placement counts them: those of one kind on one card are a provider."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fpga_pool.core.types import Ints, ints
from fpga_pool.model.flavor import provider_uuid
from fpga_pool.model.pool.columns import PoolColumns


@dataclass(frozen=True, eq=False)
class Providers:
    """The pool's slots by their providers in Placement, in the order of host, card and kind."""

    pool: PoolColumns
    #: (S,) provider of each slot, and (P,) a slot of each provider.
    of_slot: Ints
    slot: Ints
    uuids: tuple[str, ...]
    #: Row of each provider by its uuid.
    rows: Mapping[str, int]

    @classmethod
    def of(cls, pool: PoolColumns, before: "Providers | None" = None) -> "Providers":
        """Return those of a snapshot; of one with the same slots as `before` almost nothing is computed again."""
        if before is not None and _same_slots(before.pool, pool):
            same = cls(pool, before.of_slot, before.slot, before.uuids, before.rows)
            for name in ("of_host", "hosts"):  # as if they had been asked for
                if name in before.__dict__:
                    same.__dict__[name] = before.__dict__[name]
            return same
        slots = pool.slots
        card, kind = (np.unique(slots[name], return_inverse=True)[1] for name in ("card", "kind"))
        place = (pool.slot_host * (card.max(initial=0) + 1) + card) * (kind.max(initial=0) + 1) + kind
        _, first, of_slot = np.unique(place, return_index=True, return_inverse=True)
        named = zip(*(slots[name][first].tolist() for name in ("host", "card", "kind")), strict=True)
        uuids = tuple(provider_uuid(*(pool.words[number] for number in numbers)) for numbers in named)
        return cls(pool, of_slot, first, uuids, {uuid: row for row, uuid in enumerate(uuids)})

    @cached_property
    def of_host(self) -> Mapping[str, range]:
        """Rows of the providers of each host that has some."""
        host = self.pool.slot_host[self.slot]
        hosts, begin = np.unique(host, return_index=True)
        end = np.append(begin, len(host))[1:]
        names = self.pool.hosts["name"][hosts]
        return {
            self.pool.words[name]: range(first, last)
            for name, first, last in zip(names.tolist(), begin.tolist(), end.tolist(), strict=True)
        }

    @cached_property
    def hosts(self) -> "WithinHosts":
        """Where slots are within their hosts."""
        pool = self.pool
        names = [pool.words[word] for word in pool.hosts["name"].tolist()]
        numbers = np.arange(len(names))
        # Slots are in the order of their hosts, and so are providers and the cards that are numbered here.
        card = np.unique(pool.slot_host * (len(pool.words) + 1) + pool.slots["card"], return_inverse=True)[1]
        host_of_card = np.zeros(card.max(initial=-1) + 1, dtype=np.int64)
        host_of_card[card] = pool.slot_host
        first_card = np.searchsorted(host_of_card, numbers)
        first_provider = np.searchsorted(pool.slot_host[self.slot], numbers)
        return WithinHosts(
            rows={name: row for row, name in enumerate(names)},
            first_provider=first_provider.tolist(),
            card=ints(card - first_card[pool.slot_host]),
            provider=ints(self.of_slot - first_provider[pool.slot_host]),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class WithinHosts:
    """Cards and providers, numbered from 0 on each host."""

    #: Row of each host by its name, and by that the row of its provider 0.
    rows: Mapping[str, int]
    first_provider: Sequence[int]
    #: (S,) of each slot.
    card: Ints
    provider: Ints


def _same_slots(before: PoolColumns, now: PoolColumns) -> bool:
    """Say whether two snapshots have the same slots in the same rows, under the same numbers of words."""
    if before.words != now.words[: len(before.words)] or not np.array_equal(before.hosts["name"], now.hosts["name"]):
        return False
    return all(np.array_equal(before.slots[name], now.slots[name]) for name in ("host", "place", "card", "kind"))
