"""Snapshots of the pool as columns, and the deltas between them."""

import base64
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.rules.shared.columns import HOST_NUMBERS, HOST_WORDS, SLOT_NUMBERS, SLOT_WORDS, PoolColumns


class Pool:
    """Rows as a database holds them, each with the generation of its shard at the row's last change."""

    def __init__(self):
        self.generations = {"a": 0, "b": 0}
        self.hosts = {}
        self.slots = {}

    def put_host(self, name, alive):
        shard = "ab"[name % 2]
        self.generations[shard] += 1
        self.hosts[name] = (f"h{name}", shard, f"zone-{name % 3}", alive, self.generations[shard])

    def put_slot(self, host, region, function, holder):
        if host not in self.hosts:
            self.put_host(host, True)
        shard = self.hosts[host][1]
        self.generations[shard] += 1
        lease = ("pool", holder, True) if holder else ("", "", False)
        known = ("c0", "u250", "small", f"- full 1 0 line 4 {region}", "READY" if function else "EMPTY", function)
        row = (f"h{host}", shard, f"c0/{region}", *known, *lease, False, self.generations[shard])
        self.slots[host, region] = row

    def remove_slot(self, host, region):
        if self.slots.pop((host, region), None):
            self.generations["ab"[host % 2]] += 1

    def snapshot(self):
        size = len(self.hosts), len(self.slots)
        return PoolColumns.of(self.generations, list(self.hosts.values()), list(self.slots.values()), size)


def content(columns):
    """Return the contents of columns, with words in place of their numbers."""

    def rows(table, words, numbers):
        texts = [[columns.words[number] for number in table[name]] for name in words]
        return list(zip(*texts, *(table[name].tolist() for name in numbers), strict=True))

    hosts = rows(columns.hosts, HOST_WORDS, HOST_NUMBERS)
    return dict(columns.seen), columns.size, hosts, rows(columns.slots, SLOT_WORDS, SLOT_NUMBERS)


def over_the_wire(columns):
    return PoolColumns.from_plain(json.loads(json.dumps(columns.to_plain())))


NAMES, REGIONS = st.integers(0, 5), st.integers(0, 3)
CHANGE = st.one_of(
    st.tuples(st.just("put_host"), NAMES, st.booleans()),
    st.tuples(st.just("put_slot"), NAMES, REGIONS, st.sampled_from(["", "aes", "dnn"]), st.text("xyz", max_size=3)),
)
REMOVAL = st.tuples(st.just("remove_slot"), NAMES, REGIONS)


def apply(pool, changes):
    for method, *arguments in changes:
        getattr(pool, method)(*arguments)


@given(st.lists(CHANGE, max_size=20), st.lists(st.lists(CHANGE, max_size=8), max_size=5))
def test_a_snapshot_and_the_deltas_since_make_the_newest_snapshot(first, later):
    pool = Pool()
    apply(pool, first)
    known = over_the_wire(pool.snapshot())
    assert content(known) == content(pool.snapshot())
    for changes in later:
        apply(pool, changes)
        known = known.merged(over_the_wire(pool.snapshot().changed_after(known.seen)))
        assert content(known) == content(pool.snapshot())


@given(st.lists(CHANGE, max_size=20), st.lists(CHANGE | REMOVAL, max_size=8))
def test_a_delta_across_a_removal_is_right_or_refused(first, later):
    pool = Pool()
    apply(pool, first)
    known, had = pool.snapshot(), set(pool.slots)
    apply(pool, later)
    newest = pool.snapshot()
    try:
        merged = known.merged(newest.changed_after(known.seen))
    except Conflict:
        assert had - set(pool.slots)
    else:
        assert content(merged) == content(newest)


@pytest.fixture
def pool():
    pool = Pool()
    for host in range(4):
        for region in range(2):
            pool.put_slot(host, region, "", "")
    return pool


def test_a_delta_holds_only_what_changed(pool):
    known = pool.snapshot()
    pool.put_slot(2, 1, "aes", "shard-a")
    delta = pool.snapshot().changed_after(known.seen)
    assert delta.rows == (0, 1)
    assert delta.slot_name(0) == "h2/c0/1"
    # The delta has the words of its one row, and no others of the pool.
    assert set(delta.words) == {
        "h2",
        "a",
        "c0/1",
        "c0",
        "u250",
        "small",
        "READY",
        "aes",
        "pool",
        "shard-a",
        "- full 1 0 line 4 1",
    }


def test_a_removed_slot_is_a_conflict_with_every_older_snapshot(pool):
    known = pool.snapshot()
    pool.remove_slot(2, 1)
    with pytest.raises(Conflict, match="request a full snapshot"):
        known.merged(pool.snapshot().changed_after(known.seen))


def test_who_has_seen_another_database_is_told_everything(pool):
    newest = pool.snapshot()
    assert newest.changed_after({"a": 10_000}).whole
    assert newest.changed_after({"elsewhere": 1}).whole


def test_words_of_rows_that_changed_since_are_forgotten_in_time(pool):
    known = pool.snapshot()
    for number in range(1000):
        pool.put_slot(0, 0, "aes", f"holder-{number}")
        known = known.merged(pool.snapshot().changed_after(known.seen))
    # 4 hosts and 8 slots have at most 4 words each, and the last delta has at most 12.
    assert len(known.words) <= 4 * 12 + 12
    assert content(known) == content(pool.snapshot())


def test_a_slot_is_in_service_on_a_living_host_only(pool):
    pool.put_host(3, False)
    snapshot = pool.snapshot()
    hosts = [snapshot.words[number] for number in snapshot.hosts["name"][snapshot.slot_host]]
    assert hosts == ["h0", "h0", "h1", "h1", "h2", "h2", "h3", "h3"]
    assert snapshot.in_service.tolist() == [True] * 6 + [False] * 2


def test_a_faulted_or_drained_slot_is_not_in_service(pool):
    plain = pool.snapshot().to_plain()
    # Rename the state EMPTY of all slots.
    for word, in_service in (("FAULTED", False), ("DRAINED", False), ("LOADING", True)):
        renamed = plain | {"words": [word if known == "EMPTY" else known for known in plain["words"]]}
        assert PoolColumns.from_plain(renamed).in_service.tolist() == [in_service] * 8


def test_columns_of_a_pool_of_equal_slots_are_short_on_the_wire():
    pool = Pool()
    for host in range(100):
        for region in range(8):
            pool.put_slot(host, region, "", "")
    columns = pool.snapshot()
    # Uncompressed, 800 rows of 14 columns with numbers of one or two bytes would take at least 11,200 bytes.
    assert len(json.dumps(columns.to_plain()["slots"])) < 11_200 / 4


def test_columns_are_not_writable_once_they_came_over_the_wire(pool):
    with pytest.raises(ValueError, match="read-only"):
        over_the_wire(pool.snapshot()).slots["state"][0] = 1


def test_an_empty_pool_is_whole():
    snapshot = over_the_wire(PoolColumns.of({}, [], [], (0, 0)))
    assert snapshot.whole
    assert snapshot.in_service.tolist() == []


def packed(column):
    return base64.b64encode(zlib.compress(column)).decode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format: expected 1, found 2"),
        ({"words": []}, "a number without a string"),
        ({"seen": None}, "columns of the pool"),
        ({"size": [1]}, "columns of the pool"),
        ({"size": [float("inf"), 0]}, "columns of the pool.*Overflow"),
        ({"slots": {}}, "KeyError.*host"),
        ({"hosts": {name: ["f8", packed(b"")] for name in HOST_WORDS + HOST_NUMBERS}}, "KeyError.*f8"),
        ({"hosts": {name: ["u1", "!"] for name in HOST_WORDS + HOST_NUMBERS}}, "columns of the pool"),
        ({"hosts": {name: ["u1", packed(bytes(name == "name"))] for name in HOST_WORDS + HOST_NUMBERS}}, "lengths"),
    ],
)
def test_what_is_no_snapshot_is_refused(pool, change, message):
    with pytest.raises(InvalidInput, match=message):
        PoolColumns.from_plain(pool.snapshot().to_plain() | change)


def with_slot_column(pool, name, column):
    plain = pool.snapshot().to_plain()
    return plain | {"slots": plain["slots"] | {name: column}}


def test_few_bytes_do_not_become_very_many_rows(pool):
    # Three million numbers in about 3 kB on the wire; one byte each is the shortest form.
    bomb = ["u1", packed(bytes(3_000_000))]
    with pytest.raises(InvalidInput, match="a column of more than 1048576 rows"):
        PoolColumns.from_plain(with_slot_column(pool, "state", bomb))


def test_a_column_that_is_cut_off_is_refused(pool):
    cut = base64.b64encode(zlib.compress(bytes(8))[:-4]).decode()
    with pytest.raises(InvalidInput, match="incomplete"):
        PoolColumns.from_plain(with_slot_column(pool, "state", ["u1", cut]))


def test_the_number_of_a_word_is_not_below_zero(pool):
    below = ["i8", packed(np.full(8, -1, dtype="<i8").tobytes())]
    with pytest.raises(InvalidInput, match="state: a number below 0"):
        PoolColumns.from_plain(with_slot_column(pool, "state", below))


def test_numbers_on_the_wire_are_as_short_as_they_can_be():
    hosts = [(f"h{number}", "a", "", True, 2**40) for number in range(300)]
    plain = PoolColumns.of({"a": 2**40}, hosts, [], (300, 0)).to_plain()
    types = {name: wire for name, (wire, _) in plain["hosts"].items()}
    assert types == {"name": "u2", "shard": "u2", "availability_zone": "u2", "alive": "u1", "changed_in": "i8"}
    assert np.array_equal(PoolColumns.from_plain(plain).hosts["changed_in"], [2**40] * 300)
