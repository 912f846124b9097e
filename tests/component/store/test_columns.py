"""The pool as columns: which changes of hosts and slots are noticed, and which are not."""

import json
import math
from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.objects.pool import JobState, LeaseKind, LeaseState, SlotState
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.store.tables import SLOTS


@pytest.fixture
def pool(begin, make, saved):
    """Store two hosts with two slots each. An instance holds the first slot."""
    hosts = [make.host(f"host-{number}", shard="shard-0", availability_zone="zone-1") for number in range(2)]
    slots = [make.slot(host.name, region) for host in hosts for region in ("0", "1")]
    lease = make.lease(slots[0], kind=LeaseKind.INSTANCE, holder="instance-1", revocable=False)
    saved(*hosts, *slots, lease)
    return slots, lease


def test_the_ingress_that_is_planned_is_what_waits_for_input_from_elsewhere(store, pool, make, saved):
    batch = make.batch()

    def job(index, **changes):
        facts = {"slot": "host-0/card-0/1", "host": "host-0", "state": JobState.WAITING_INPUT, "input_bytes": 10**9}
        return make.job(batch, index=index, **facts | changes)

    assert store.pool_columns().ingress == {}
    seen = store.pool_columns().seen
    saved(
        make.host("fast", shard="shard-0", ingress_bps=math.inf), make.host("idle", shard="shard-0"), batch,
        job(1), job(2), job(3, state=JobState.STAGED), job(4, requester="host-0"), job(5, host="fast"),
        job(6, host="idle", input_bytes=1),
    )  # fmt: skip
    planned = {"host-0": (16e9, 1e10)}
    assert store.pool_columns().ingress == planned
    delta = store.pool_columns(seen)
    assert delta.ingress == planned
    assert PoolColumns.from_plain(json.loads(json.dumps(delta.to_plain()))).ingress == planned
    assert store.pool_columns(seen, count=False).ingress is None


def rows(columns):
    """Return host, place, state, function, lease, holder and revocable of each slot."""
    words = [
        [columns.words[number] for number in columns.slots[name]]
        for name in ("host", "place", "state", "function", "lease", "holder")
    ]
    return list(zip(*words, columns.slots["revocable"].tolist(), strict=True))


def hosts(columns):
    words = [[columns.words[number] for number in columns.hosts[name]] for name in ("name", "availability_zone")]
    return list(zip(*words, columns.hosts["alive"].tolist(), strict=True))


def test_a_snapshot_tells_of_every_slot_who_holds_it(store, pool):
    snapshot = store.pool_columns()
    assert snapshot.whole
    assert rows(snapshot) == [
        ("host-0", "card-0/0", "EMPTY", "", "instance", "instance-1", 0),
        ("host-0", "card-0/1", "EMPTY", "", "", "", 0),
        ("host-1", "card-0/0", "EMPTY", "", "", "", 0),
        ("host-1", "card-0/1", "EMPTY", "", "", "", 0),
    ]
    assert [snapshot.slot_name(row) for row in range(4)] == [slot.name for slot in pool[0]]
    assert hosts(snapshot) == [("host-0", "zone-1", 1), ("host-1", "zone-1", 1)]


def test_a_changed_slot_is_told_and_no_other(store, begin, pool):
    seen = store.pool_columns().seen
    with begin() as tx:
        tx.save(replace(tx.slot(pool[0][3].name), state=SlotState.BUSY, function="aes"))
    delta = store.pool_columns(seen)
    assert rows(delta) == [("host-1", "card-0/1", "BUSY", "aes", "", "", 0)]
    assert delta.rows == (0, 1)
    assert store.pool_columns(delta.seen).rows == (0, 0)


def test_a_lease_that_is_granted_or_released_is_a_change_of_its_slot(store, begin, make, pool):
    slots, lease = pool
    seen = store.pool_columns().seen
    with begin() as tx:
        tx.add(make.lease(slots[2]))
    granted = store.pool_columns(seen)
    assert rows(granted) == [("host-1", "card-0/0", "EMPTY", "", "pool", "shard-0", 1)]
    with begin() as tx:
        held = next(held for held in tx.leases() if held.uuid == lease.uuid)
        tx.save(replace(held, state=LeaseState.RELEASED, released_at=2.0))
    assert rows(store.pool_columns(granted.seen)) == [("host-0", "card-0/0", "EMPTY", "", "", "", 0)]


def test_the_life_of_a_host_is_a_change_and_a_heartbeat_alone_is_none(store, begin, pool):
    seen = store.pool_columns().seen
    with begin() as tx:
        tx.save(replace(tx.host("host-1"), beat=7, heard_at=99.0, reported=3, refused_messages=1))
    assert store.pool_columns(seen).rows == (0, 0)
    with begin() as tx:
        tx.save(replace(tx.host("host-1"), alive=False))
    assert hosts(store.pool_columns(seen)) == [("host-1", "zone-1", 0)]


def test_a_snapshot_follows_the_database_by_deltas(store, begin, make, pool):
    known = store.pool_columns()
    with begin() as tx:
        tx.add(make.host("host-2", shard="shard-0"), make.slot("host-2"))
    with begin() as tx:
        tx.save(replace(tx.slot(pool[0][1].name), drain_requested=True))
    newest, merged = store.pool_columns(), known.merged(store.pool_columns(known.seen))
    assert (rows(merged), hosts(merged), merged.seen) == (rows(newest), hosts(newest), newest.seen)
    assert merged.in_service.tolist() == newest.in_service.tolist() == [True, False, True, True, True]


def test_how_a_slot_is_linked_is_told_and_a_change_of_it_as_well(store, begin, pool):
    seen = store.pool_columns().seen
    word = "box0 ring 8 3 full 4 2"
    with begin() as tx:
        tx.save(replace(tx.slot(pool[0][3].name), links=word))
    with store.reading() as tx:
        assert tx.slot(pool[0][3].name).links == word
    for columns in (store.pool_columns(), store.pool_columns(seen)):
        told = [columns.words[number] for number in columns.slots["links"].tolist()]
        assert told[-1] == word
        assert set(told[:-1]) <= {""}


def test_a_shard_that_is_new_is_told_whole(store, begin, make, pool, saved):
    seen = store.pool_columns().seen
    store.ensure_shards(["another"], now_s=1.0)
    saved(make.host("host-2", shard="another"), make.slot("host-2", shard="another"))
    delta = store.pool_columns(seen)
    assert (delta.rows, delta.size) == ((1, 1), (3, 5))


def test_what_was_removed_is_missed_by_who_counts(store, begin, pool):
    known = store.pool_columns()
    with store.engine.begin() as connection:
        connection.execute(SLOTS.delete().where(SLOTS.c.name == pool[0][3].name))
    assert known.merged(store.pool_columns(known.seen, count=False)).rows == (2, 4)
    with pytest.raises(Conflict):
        known.merged(store.pool_columns(known.seen))


def test_who_has_seen_an_older_or_another_database_is_told_everything(store, pool):
    assert store.pool_columns({"shard-0": 10_000}).whole
    assert store.pool_columns({"shard-9": 0}).whole
