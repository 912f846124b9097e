"""The pool's hosts and slots as columns: a snapshot, deltas that update it, and the slots grouped by provider.

A scheduler of instances inspects every slot for each request, so it needs arrays rather than objects.  Each distinct
string is stored once, as a word; columns hold the numbers of words.  Rows are identified by their names. The number of
a word has no meaning outside the object that contains it.
"""

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import Ints, ints
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.flavor import provider_uuid
from fpga_pool.model.objects.pool import SlotState

#: Columns whose values are words, and columns of plain numbers.  `place` is the slot's card/region on its host; `lease`
#: is the kind of the lease in force on it ("" = none), `holder` the holder of the lease; `links` is encoded as in
#: `model.objects.links`. `changed_in` is the generation of the shard in which the row changed last.
HOST_WORDS, HOST_NUMBERS = ("name", "shard", "availability_zone"), ("alive", "changed_in")
SLOT_WORDS = ("host", "shard", "place", "card", "board", "kind", "links", "state", "function", "lease", "holder")
SLOT_NUMBERS = ("revocable", "drain_requested", "changed_in")
#: The columns that together identify a row.
HOST_KEY, SLOT_KEY = ("name",), ("host", "place")

#: Version of the wire format.
FORMAT = 1
#: Numbers on the wire are little-endian, in the smallest type that can hold the largest number of their column.
_WIRE_TYPES = {name: np.dtype(f"<{name}") for name in ("u1", "u2", "u4", "i8")}
#: Maximum number of rows read per column, larger than any pool: a few compressed bytes can encode very many rows.
MAX_ROWS = 2**20
#: Unused words are dropped once there are more than this many words per row.
_WORDS_PER_ROW = 4

Columns = Mapping[str, Ints]
#: By host: bits that are planned to be sent to it and have not arrived, and its ingress limit in bits per second.
Ingress = Mapping[str, tuple[float, float]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PoolColumns:
    """Hosts and slots of the pool at one moment: all of them, or those that changed after an earlier one."""

    #: Generation of each shard at that moment. A client passes it to request the changes since then.
    seen: Mapping[str, int]
    #: Strings by number.
    words: tuple[str, ...]
    #: (H,) int64 each, and (S,) int64 each, in the order of the rows' names.
    hosts: Columns
    slots: Columns
    #: Number of hosts and slots of the pool at that moment; None = not counted.
    size: tuple[int, int] | None
    #: Always complete, even in a delta; hosts without planned ingress are omitted. None = not requested.
    ingress: Ingress | None = None

    @classmethod
    def of(
        cls,
        seen: Mapping[str, int],
        hosts: Sequence[Sequence[Any]],
        slots: Sequence[Sequence[Any]],
        size: tuple[int, int] | None,
        ingress: Ingress | None = None,
    ) -> "PoolColumns":
        """Make columns from rows of HOST_WORDS + HOST_NUMBERS and of SLOT_WORDS + SLOT_NUMBERS, in this order."""
        numbers: dict[str, int] = {}
        made_hosts = _columns(hosts, HOST_WORDS, HOST_NUMBERS, numbers)
        made_slots = _columns(slots, SLOT_WORDS, SLOT_NUMBERS, numbers)
        words = tuple(numbers)
        return cls(
            seen=dict(seen),
            words=words,
            hosts=_sorted(made_hosts, HOST_KEY, words),
            slots=_sorted(made_slots, SLOT_KEY, words),
            size=size,
            ingress=ingress,
        )

    @property
    def rows(self) -> tuple[int, int]:
        """Number of hosts and slots in these columns."""
        return len(self.hosts["name"]), len(self.slots["host"])

    @property
    def whole(self) -> bool:
        """Whether these are all hosts and slots of the pool."""
        return self.rows == self.size

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Number of each word; words that no row uses may be missing."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def slot_host(self) -> Ints:
        """(S,) row of each slot's host; only defined for a whole snapshot."""
        rows = np.full(len(self.words), -1, dtype=np.int64)
        rows[self.hosts["name"]] = np.arange(len(self.hosts["name"]))
        return ints(rows[self.slots["host"]])

    @cached_property
    def in_service(self) -> Bools:
        """(S,) whether the slot can get new work, regardless of leases; only defined for a whole snapshot."""
        faulted, drained = (self.numbers.get(state, -1) for state in (SlotState.FAULTED, SlotState.DRAINED))
        state = self.slots["state"]
        usable = (state != faulted) & (state != drained) & (self.slots["drain_requested"] == 0)
        in_service: Bools = usable & (self.hosts["alive"][self.slot_host] == 1)
        return in_service

    def slot_name(self, row: int) -> str:
        """Return the name of the slot in a row."""
        return f"{self.words[self.slots['host'][row]]}/{self.words[self.slots['place'][row]]}"

    def changed_after(self, seen: Mapping[str, int]) -> "PoolColumns":
        """Return the rows that changed after `seen`; all rows if `seen` is not an earlier moment of the same pool."""
        seen_in = np.full(len(self.words), -1, dtype=np.int64)
        for shard, generation in already_sent(seen, self.seen).items():
            if shard in self.numbers:
                seen_in[self.numbers[shard]] = generation
        hosts = _taken(self.hosts, self.hosts["changed_in"] > seen_in[self.hosts["shard"]])
        slots = _taken(self.slots, self.slots["changed_in"] > seen_in[self.slots["shard"]])
        return _compacted(replace(self, hosts=hosts, slots=slots))

    def merged(self, delta: "PoolColumns") -> "PoolColumns":
        """Return the snapshot of the delta's moment, made by applying the delta to this earlier snapshot.

        Raises Conflict if the result does not have the size of the pool, because the delta is of another pool or rows
        were removed.
        """
        if delta.whole:
            return delta
        numbers = self._with_numbers_for(delta.words)
        renumbered = np.array([numbers[word] for word in delta.words], dtype=np.int64)
        words = self.words if numbers is self.numbers else tuple(numbers)
        hosts = _merged(self.hosts, _renumbered(delta.hosts, HOST_WORDS, renumbered), HOST_KEY, words)
        slots = _merged(self.slots, _renumbered(delta.slots, SLOT_WORDS, renumbered), SLOT_KEY, words)
        size = len(hosts["name"]), len(slots["host"])
        if delta.size not in (None, size):
            raise Conflict("the delta does not match this snapshot: request a full snapshot")
        ingress = self.ingress if delta.ingress is None else delta.ingress
        merged = replace(delta, words=words, hosts=hosts, slots=slots, size=size, ingress=ingress)
        if len(words) > _WORDS_PER_ROW * sum(size):
            return _compacted(merged)
        merged.__dict__["numbers"] = numbers  # fill the cached property: numbering all words again would be slow
        return merged

    def _with_numbers_for(self, words: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of this snapshot's words, extended by numbers for those of `words` that are new."""
        new = [word for word in words if word not in self.numbers]
        if not new:
            return self.numbers
        return {**self.numbers, **{word: number for number, word in enumerate(new, len(self.words))}}

    def to_plain(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "format": FORMAT,
            "seen": dict(self.seen),
            "words": list(self.words),
            "hosts": {name: _to_text(column) for name, column in self.hosts.items()},
            "slots": {name: _to_text(column) for name, column in self.slots.items()},
            "size": self.size,
            "ingress": self.ingress,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "PoolColumns":
        """Return the object that `to_plain` has encoded. Raises InvalidInput if it is malformed."""
        if plain.get("format") != FORMAT:
            raise InvalidInput(f"format: expected {FORMAT}, found {plain.get('format')!r}")
        try:
            words = tuple(plain["words"])
            return cls(
                seen=dict(plain["seen"]),
                words=words,
                hosts=_read_columns(plain["hosts"], HOST_WORDS, HOST_NUMBERS, len(words)),
                slots=_read_columns(plain["slots"], SLOT_WORDS, SLOT_NUMBERS, len(words)),
                size=None if plain["size"] is None else (int(plain["size"][0]), int(plain["size"][1])),
                ingress=None if plain["ingress"] is None else _read_ingress(plain["ingress"]),
            )
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError, zlib.error) as error:
            raise InvalidInput(f"columns of the pool: {error!r}") from None


def already_sent(seen: Mapping[str, int], now: Mapping[str, int]) -> Mapping[str, int]:
    """Return the generations that a client has already seen; empty if they are from another database."""
    return seen if all(seen[shard] <= now.get(shard, -1) for shard in seen) else {}


def _compacted(pool: PoolColumns) -> PoolColumns:
    """Return the same columns with only the words that are in use."""
    columns = [pool.hosts[name] for name in HOST_WORDS] + [pool.slots[name] for name in SLOT_WORDS]
    used = np.unique(np.concatenate(columns))
    renumbered = np.zeros(len(pool.words), dtype=np.int64)
    renumbered[used] = np.arange(len(used))
    return replace(
        pool,
        words=tuple(pool.words[number] for number in used),
        hosts=_renumbered(pool.hosts, HOST_WORDS, renumbered),
        slots=_renumbered(pool.slots, SLOT_WORDS, renumbered),
    )


def _columns(
    rows: Sequence[Sequence[Any]], words: Sequence[str], plain: Sequence[str], numbers: dict[str, int]
) -> Columns:
    """Return the columns of rows; new words are added to `numbers`."""
    columns = list(zip(*rows, strict=True)) or [()] * (len(words) + len(plain))
    texts = [[numbers.setdefault(word, len(numbers)) for word in column] for column in columns[: len(words)]]
    values = [*texts, *columns[len(words) :]]
    return {name: np.array(column, dtype=np.int64) for name, column in zip((*words, *plain), values, strict=True)}


def _taken(columns: Columns, rows: Ints | Bools) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _renumbered(columns: Columns, words: Sequence[str], renumbered: Ints) -> Columns:
    return {name: renumbered[column] if name in words else column for name, column in columns.items()}


def _sorted(columns: Columns, key: Sequence[str], words: Sequence[str]) -> Columns:
    rank = np.empty(len(words), dtype=np.int64)
    rank[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    return _taken(columns, np.lexsort([rank[columns[name]] for name in reversed(key)]))


def _keys(columns: Columns, key: Sequence[str]) -> Ints:
    """Return one number per row, made by concatenating the word numbers of its key, each of which is below 2**31."""
    keys = columns[key[0]]
    for name in key[1:]:
        keys = (keys << 32) | columns[name]
    return keys


def _merged(old: Columns, new: Columns, key: Sequence[str], words: Sequence[str]) -> Columns:
    """Return the old rows, of which new rows replace those with the same key; the other new rows are added."""
    old_keys, new_keys = _keys(old, key), _keys(new, key)
    if not len(new_keys):
        return old
    # Sort the new rows, not the old ones, because they are few.
    order = np.argsort(new_keys)
    places = order[np.minimum(np.searchsorted(new_keys, old_keys, sorter=order), len(order) - 1)]
    rows = np.flatnonzero(new_keys[places] == old_keys)
    added = np.ones(len(new_keys), dtype=bool)
    added[places[rows]] = False
    merged = {name: _replaced(column, rows, new[name][places[rows]]) for name, column in old.items()}
    if not added.any():
        return merged
    return _sorted({name: np.concatenate([merged[name], new[name][added]]) for name in old}, key, words)


def _replaced(column: Ints, rows: Ints, values: Ints) -> Ints:
    """Return a column with other values in some rows, or the column itself, uncopied for speed, if nothing changes."""
    if (column[rows] == values).all():
        return column
    changed = column.copy()
    changed[rows] = values
    return changed


def _to_text(column: Ints) -> list[str]:
    largest = int(column.max(initial=0))
    name = next(name for name, wire in _WIRE_TYPES.items() if largest <= np.iinfo(wire).max)
    # Most columns repeat a value or a pattern: the fastest level compresses them to a tenth.
    packed = zlib.compress(column.astype(_WIRE_TYPES[name]).tobytes(), zlib.Z_BEST_SPEED)
    return [name, base64.b64encode(packed).decode("ascii")]


def _from_text(wire: str, text: str) -> Ints:
    width = _WIRE_TYPES[wire].itemsize
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(base64.b64decode(text, validate=True), MAX_ROWS * width)
    if not unpacker.eof:
        raise ValueError(f"a column of more than {MAX_ROWS} rows, or an incomplete one")
    return ints(np.frombuffer(data, dtype=_WIRE_TYPES[wire]))


def _read_columns(
    plain: Mapping[str, Sequence[str]], words: Sequence[str], numbers: Sequence[str], word_count: int
) -> dict[str, Ints]:
    columns = {}
    for name in (*words, *numbers):
        wire, text = plain[name]
        columns[name] = _from_text(wire, text)
        if columns[name].min(initial=0) < 0:
            raise ValueError(f"{name}: a number below 0")
        if name in words and columns[name].max(initial=-1) >= word_count:
            raise ValueError(f"{name}: a number without a string")
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError("columns of different lengths")
    return columns


def _read_ingress(plain: Mapping[str, Sequence[float]]) -> Ingress:
    ingress = {host: (float(planned), float(bps)) for host, (planned, bps) in plain.items()}
    if any(not (0 <= planned < math.inf and 0 < bps < math.inf) for planned, bps in ingress.values()):
        raise ValueError("ingress: expected bits and bits per second, finite numbers above 0")
    return ingress


# ---- Providers in Placement


@dataclass(frozen=True, eq=False)
class Providers:
    """The pool's slots grouped by their providers in Placement, which are ordered by host, card and kind."""

    pool: PoolColumns
    #: (S,) provider of each slot, and (P,) one slot of each provider.
    of_slot: Ints
    slot: Ints
    uuids: tuple[str, ...]
    #: Row of each provider by its uuid.
    rows: Mapping[str, int]

    @classmethod
    def of(cls, pool: PoolColumns, before: "Providers | None" = None) -> "Providers":
        """Return the providers of a snapshot; if it has the same slots as `before`, their results are reused."""
        if before is not None and _same_slots(before.pool, pool):
            same = cls(pool, before.of_slot, before.slot, before.uuids, before.rows)
            for name in ("card", "of_host", "hosts"):  # take over the cached properties
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
    def card(self) -> Ints:
        """(P,) number of the card of each provider, within the pool."""
        card = self.pool.slot_host * (len(self.pool.words) + 1) + self.pool.slots["card"]
        return ints(np.unique(card[self.slot], return_inverse=True)[1])

    @cached_property
    def of_host(self) -> Mapping[str, range]:
        """Rows of the providers of each host that has providers."""
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
        """Numbers of the slots' cards and providers within their hosts."""
        pool = self.pool
        names = [pool.words[word] for word in pool.hosts["name"].tolist()]
        numbers = np.arange(len(names))
        # Slots, providers and the cards numbered here are all in the order of their hosts.
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

    #: Row of each host by its name, and (H,) the row of each host's provider 0.
    rows: Mapping[str, int]
    first_provider: Sequence[int]
    #: (S,) card and provider of each slot, numbered within its host.
    card: Ints
    provider: Ints


def _same_slots(before: PoolColumns, now: PoolColumns) -> bool:
    """Return whether two snapshots have the same slots in the same rows, with the same word numbers."""
    if before.words != now.words[: len(before.words)] or not np.array_equal(before.hosts["name"], now.hosts["name"]):
        return False
    return all(np.array_equal(before.slots[name], now.slots[name]) for name in ("host", "place", "card", "kind"))
