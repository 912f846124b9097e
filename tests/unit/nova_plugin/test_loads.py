"""The table of the loads of hosts: its content, and its incremental updates after changes in snapshots."""

import numpy as np

from fpga_pool.model.rules.shared.columns import PoolColumns, Providers
from fpga_pool.nova_plugin.pool import BUSY, HELD, IN_SERVICE, LEASED, LoadTables

FUNCTIONS = ("aes", "sha256")
FREE, POOL, INSTANCE = ("", "", False), ("pool", "default", True), ("instance", "one", False)


def snapshot(slots, generation=1, silent=()):
    """Return columns of slots by (host, place): (state, function, lease, generation of the change)."""
    names = sorted({host for host, _ in slots})
    hosts = [(name, "default", "zone", name not in silent, generation if name in silent else 1) for name in names]
    return PoolColumns.of({"default": generation}, hosts, rows(slots), (len(hosts), len(slots)))


def rows(slots):
    return [
        (host, "default", f"card/{place}", "card", "demo", "small", "", state, function, *lease, False, changed)
        for (host, place), (state, function, lease, changed) in slots.items()
    ]


SLOTS = {
    ("a", "r0"): ("BUSY", "aes", INSTANCE, 1),
    ("a", "r1"): ("BUSY", "sha256", POOL, 1),
    ("a", "r2"): ("READY", "other", INSTANCE, 1),
    ("b", "r0"): ("FAULTED", "", FREE, 1),
    ("b", "r1"): ("EMPTY", "", FREE, 1),
}


def test_slots_are_counted_by_what_they_do_and_who_has_them():
    found = LoadTables().of(Providers.of(snapshot(SLOTS)), FUNCTIONS)
    # A slot of the pool is not held, since its job gives way to an instance; `other` is not in the catalogue.
    expected = np.zeros((2, HELD + 3))
    expected[0, [IN_SERVICE, BUSY, LEASED, HELD, HELD + 2]] = [3, 2, 3, 1, 1]
    expected[1, IN_SERVICE] = 1
    np.testing.assert_array_equal(found.counts, expected)
    assert found.counts.dtype == np.float32


def test_after_a_change_only_its_hosts_are_counted_and_the_table_is_that_of_a_whole_count():
    rng, tables, slots = np.random.default_rng(0), LoadTables(), {}
    for host in range(40):
        for place in range(3):
            slots[f"h{host:02}", f"r{place}"] = "EMPTY", "", FREE, 1
    providers = Providers.of(snapshot(slots))
    assert tables.of(providers, FUNCTIONS).counted == 40
    assert tables.of(providers, FUNCTIONS) is tables.of(providers, FUNCTIONS)
    for generation in range(2, 30):
        changed = {f"h{host:02}" for host in rng.integers(40, size=3)}
        for host in changed:
            state, function = rng.choice(["BUSY", "READY"]), str(rng.choice([*FUNCTIONS, "other"]))
            slots[host, "r1"] = str(state), function, (POOL, INSTANCE)[rng.integers(2)], generation
        delta = {key: slots[key] for key in slots if key[0] in changed}
        pool = providers.pool.merged(PoolColumns.of({"default": generation}, [], rows(delta), None))
        providers = Providers.of(pool, providers)
        found = tables.of(providers, FUNCTIONS)
        assert found.counted == len(changed)
        np.testing.assert_array_equal(found.counts, LoadTables().of(providers, FUNCTIONS).counts)


def test_a_host_that_does_not_respond_has_no_slots_in_service():
    tables, before = LoadTables(), Providers.of(snapshot(SLOTS))
    assert tables.of(before, FUNCTIONS).counts[0, IN_SERVICE] == 3
    now = Providers.of(snapshot(SLOTS, 2, silent=("a",)), before)
    found = tables.of(now, FUNCTIONS)
    assert (found.counted, found.counts[0, IN_SERVICE], found.counts[1, IN_SERVICE]) == (1, 0, 1)


def test_slots_that_come_or_go_and_another_catalogue_make_a_new_table():
    tables, providers = LoadTables(), Providers.of(snapshot(SLOTS))
    tables.of(providers, FUNCTIONS)
    more = Providers.of(snapshot({**SLOTS, ("c", "r0"): ("EMPTY", "", FREE, 2)}, 2), providers)
    assert tables.of(more, FUNCTIONS).counted == 3
    assert tables.of(more, ("aes",)).counts.shape == (3, HELD + 2)
