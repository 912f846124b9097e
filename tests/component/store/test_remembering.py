"""The cache of a shard in a store agrees with the database, also if another process has changed it."""

import contextlib
import random
from dataclasses import replace

import pytest
from sqlalchemy import event

from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.pool import JobState, LeaseState, SlotState
from fpga_pool.store import Store
from fpga_pool.store.designs import remove_design
from fpga_pool.store.purge import remove_slots
from fpga_pool.store.store import LastBeat

SHARD = "shard-0"


@pytest.fixture
def pool(store, make, saved):
    """Return a host with two slots, one of which is leased, and a running job, all known to the store."""
    host, *slots = saved(make.host(shard=SHARD), make.slot(), make.slot(region="1"))
    batch = make.batch()
    _, job, _ = saved(batch, make.job(batch, state=JobState.STAGED), make.lease(slots[0]))
    learn(store)
    return host, slots, job


@pytest.fixture
def other(store):
    """Yield the store of another process."""
    found = Store(store.engine.url.render_as_string(hide_password=False))
    yield found
    found.close()


def learn(store):
    with store.reading(SHARD) as tx:
        return tx.hosts(), tx.slots(), tx.leases()


def read(store):
    with store.transaction(SHARD) as tx:
        return tx.hosts(), tx.slots(), tx.leases()


@pytest.fixture
def statements(store):
    said = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: said.append(call[2]))
    return said


def test_what_was_read_is_not_read_again(store, pool, statements):
    expected = learn(store)
    statements.clear()
    assert read(store) == expected
    assert not [said for said in statements if "FROM hosts" in said or "slots" in said or "leases" in said]


def test_what_was_committed_here_is_not_read_either(store, pool, statements):
    _, slots, job = pool
    with store.transaction(SHARD) as tx:
        tx.save(replace(tx.slot(slots[1].name), state=SlotState.READY, function="aes"))
        tx.save(replace(tx.leases()[0], state=LeaseState.RELEASED))
        tx.save(replace(tx.job(job.uuid), state=JobState.RUNNING))
        assert [slot.state for slot in tx.slots()] == [SlotState.EMPTY, SlotState.READY]
        assert tx.leases() == tx.leases(slots=[slots[0].name]) == []
    statements.clear()
    with store.transaction(SHARD) as tx:
        seen = tx.slots(), tx.leases(), tx.job(job.uuid)
    assert not [said for said in statements if "FROM slots" in said or "FROM leases" in said or "FROM jobs" in said]
    with store.reading() as tx:
        assert seen == (tx.slots(), tx.leases(), tx.job(job.uuid))


def test_what_was_rolled_back_is_not_remembered(store, pool):
    slot = pool[1][0]
    with contextlib.suppress(NotFound), store.transaction(SHARD) as tx:
        tx.save(replace(tx.slot(slot.name), state=SlotState.READY))
        tx.slot("none")
    assert read(store)[1] == pool[1]


def test_a_change_by_another_process_is_seen(store, other, pool):
    slot = pool[1][0]
    with other.transaction(SHARD) as tx:
        tx.save(replace(tx.slot(slot.name), state=SlotState.READY))
    assert read(store)[1][0].state is SlotState.READY
    assert learn(store)[1][0].state is SlotState.READY


def test_what_waits_at_slots_is_read_once_in_a_generation(store, other, pool, statements):
    job = pool[2]
    with store.reading(SHARD) as tx:
        (before,) = tx.backlogs()
    statements.clear()
    with store.transaction(SHARD) as tx:
        assert tx.backlogs() == [before]
        assert not [said for said in statements if "max(" in said]
        tx.save(replace(tx.job(job.uuid), order=before.last_order + 1))
        changed = tx.backlogs()
    assert [one.last_order for one in changed] == [before.last_order + 1]
    with store.reading(SHARD) as tx:
        assert tx.backlogs() == changed
    with other.transaction(SHARD) as tx:
        tx.save(replace(tx.job(job.uuid), order=7))
    with store.reading(SHARD) as tx:
        assert [one.last_order for one in tx.backlogs()] == [7]


def test_jobs_that_began_since_none_was_under_way_are_not_looked_for(store, other, pool, make, saved, statements):
    _, slots, job = pool
    ended = replace(job, state=JobState.COMPLETED)
    with store.transaction(SHARD) as tx:
        tx.save(ended)
    learn(store)
    with store.reading(SHARD) as tx:
        assert tx.backlogs() == []
    batch = make.batch(name="next")
    with store.transaction(SHARD) as tx:
        tx.add(batch, *(make.job(batch, index=index) for index in (0, 1)))
        first, second = tx.batch_jobs(batch.uuid)
        tx.save(replace(first, state=JobState.WAITING_INPUT, slot=slots[0].name, order=3, end_s=2.0))
    names = [slot.name for slot in slots]
    statements.clear()
    with store.transaction(SHARD) as tx:
        assert [(one.slot, one.last_order) for one in tx.backlogs()] == [(names[0], 3)]
        tx.save(replace(tx.job(first.uuid), state=JobState.COMPLETED))
        tx.save(replace(tx.jobs([second.uuid])[0], state=JobState.RUNNING, slot=names[1], order=4))
        assert tx.occupied(names) == {names[1]}
        assert tx.occupied(names[:1]) == set()
    assert not [said for said in statements if "max(" in said or "DISTINCT" in said]
    with store.reading(SHARD) as remembering, other.reading(SHARD) as reading:
        assert list(remembering.backlogs()) == list(reading.backlogs()) != []
    with other.transaction(SHARD) as tx:
        tx.save(replace(tx.job(second.uuid), state=JobState.COMPLETED))
    with store.transaction(SHARD) as tx:
        assert (list(tx.backlogs()), tx.occupied(names)) == ([], set())


def test_jobs_under_way_are_read_once_and_then_followed(store, pool, statements):
    _, slots, job = pool
    with store.transaction(SHARD) as tx:
        assert tx.active_jobs(host=job.host) == [job]
    statements.clear()
    with store.transaction(SHARD) as tx:
        assert tx.active_jobs(slot=job.slot) == tx.active_jobs() == [job]
        tx.save(replace(tx.job(job.uuid), slot=slots[1].name))
        assert tx.active_jobs(slot=job.slot) == []
        assert [moved.uuid for moved in tx.active_jobs(slot=slots[1].name)] == [job.uuid]
        tx.save(replace(tx.job(job.uuid), state=JobState.COMPLETED))
        assert tx.active_jobs() == []
    with store.transaction(SHARD) as tx:
        assert tx.active_jobs() == []
    assert not [said for said in statements if "FROM jobs" in said]


@pytest.mark.parametrize(("most", "seed"), [(1000, 0), (1000, 1), (3, 2)])
def test_jobs_under_way_are_those_of_the_database_whoever_changes_them(
    store, other, pool, make, saved, monkeypatch, most, seed
):
    monkeypatch.setattr("fpga_pool.store.memory.JOBS_READ", most)
    monkeypatch.setattr("fpga_pool.store.memory.JOBS_READ_EVERY", 5)
    rng, slots = random.Random(seed), [slot.name for slot in pool[1]]
    batch = make.batch(name="more")
    _, *jobs = saved(batch, *(make.job(batch, index=index, flow=str(index % 2)) for index in range(8)))
    states = [JobState.PENDING, JobState.WAITING_INPUT, JobState.RUNNING, JobState.RESULT_HELD, JobState.COMPLETED]

    def listed(tx):
        asked = {"slot": slots[0]}, {"slot": slots[1]}, {"host": pool[0].name}, {"flow": "1"}, {}
        return [list(tx.active_jobs(**where)) for where in asked], tx.occupied(slots)

    for _ in range(40):
        changing = other if rng.random() < 0.2 else store
        learn(store)
        with changing.transaction(SHARD) as tx:
            for job in rng.sample(jobs, rng.randrange(4)):
                placed = {"slot": rng.choice(slots), "order": rng.randrange(9), "state": rng.choice(states)}
                tx.save(replace(tx.job(job.uuid), **placed))
            in_between = listed(tx)
        url = store.engine.url.render_as_string(hide_password=False)
        with contextlib.closing(Store(url)) as fresh, store.reading(SHARD) as tx, fresh.reading(SHARD) as expected:
            assert in_between == listed(tx) == listed(expected)


def test_a_job_of_another_shard_is_not_among_those_under_way(store, pool, make, saved):
    store.ensure_shards(["shard-1"], 1.0)
    batch = make.batch(name="there")
    _, there = saved(batch, make.job(batch, state=JobState.STAGED, shard="shard-1"))
    with store.transaction(SHARD) as tx:
        assert tx.active_jobs() == [pool[2]]
        tx.save(replace(tx.job(there.uuid), order=7))
    with store.transaction(SHARD) as tx:
        assert tx.active_jobs() == [pool[2]]


def test_designs_are_read_again_where_one_has_changed(store, other, pool, make, statements):
    def decided(by):
        with by.reading(SHARD) as tx:
            return list(tx.design_functions([DesignState.APPROVED]))

    assert decided(store) == []
    with store.transaction(SHARD) as tx:  # changes within a shard do not affect designs
        tx.save(replace(tx.job(pool[2].uuid), order=7))
    statements.clear()
    assert decided(store) == []
    assert not [said for said in statements if "designs" in said]
    design = make.design()
    for change, expected in (
        (lambda tx: tx.add(design), []),
        (lambda tx: tx.save(replace(tx.design(design.uuid), state=DesignState.APPROVED)), [design.function]),
        (lambda tx: remove_design(tx, design), []),
    ):
        with other.admission() as tx:
            change(tx)
        assert decided(store) == expected
        learn(store)
        assert decided(store) == expected
        statements.clear()
        assert decided(store) == expected
        assert not [said for said in statements if "designs" in said]


def test_designs_that_a_transaction_has_changed_are_not_remembered(store, pool, make):
    design = make.design(state=DesignState.APPROVED)

    def decided(tx):
        return list(tx.design_functions([DesignState.APPROVED]))

    for change, expected in (
        (lambda tx: tx.add(design), [design.function]),
        (lambda tx: tx.save(replace(tx.design(design.uuid), state=DesignState.REVOKED)), []),
        (lambda tx: tx.save(replace(tx.design(design.uuid), state=DesignState.APPROVED)), [design.function]),
        (lambda tx: remove_design(tx, design), []),
    ):
        learn(store)
        with contextlib.suppress(NotFound), store.transaction(SHARD) as tx:
            before = decided(tx)
            change(tx)
            assert decided(tx) == expected != before
            raise NotFound("undone")
        with store.reading(SHARD) as tx:
            assert decided(tx) == before
        with store.transaction(SHARD) as tx:
            change(tx)
        with store.reading(SHARD) as tx:
            assert decided(tx) == expected


def test_what_is_added_and_removed_is_seen(store, pool, make):
    with store.transaction(SHARD) as tx:
        tx.add(make.slot(region="2"))
        assert len(tx.slots()) == 3
    assert len(learn(store)[1]) == len(read(store)[1]) == 3
    name = pool[1][1].name
    remove_slots(store, SHARD, [name])
    with pytest.raises(NotFound), store.transaction(SHARD) as tx:
        tx.slot(name)


def test_the_last_heartbeat_of_a_host_is_told_to_who_asks_for_it(store, pool):
    host = pool[0]
    store.note_alive({host.name: LastBeat(host.agent_id, host.boot, 7, (), None)}, 2.0)
    with store.transaction(SHARD) as tx:
        tx.save(replace(tx.host(host.name), reported=3))
        heard = tx.host(host.name, heard=True)
    assert (heard.beat, heard.heard_at, heard.reported) == (7, 2.0, 3)


def test_hosts_of_the_whole_pool_are_read_where_a_shard_is_not_known(store, pool, make):
    store.ensure_shards(["shard-1"], 1.0)
    with store.transaction("shard-1") as tx:
        tx.add(make.host("host-1", shard="shard-1"))
    assert [host.name for host in read(store)[0]] == ["host-0", "host-1"]


def test_jobs_that_were_read_in_this_generation_are_not_compared(store, other, pool, statements):
    job = pool[2]
    with store.reading(SHARD) as tx:
        found_in = tx.shard.pool_generation
    with store.transaction(SHARD) as tx:
        statements.clear()
        assert tx.unchanged([job], found_in) == [job]
        assert tx.job(job.uuid) == job
        assert statements == []
    with other.transaction(SHARD) as tx:
        tx.save(replace(tx.job(job.uuid), order=7))
    with store.transaction(SHARD) as tx:
        assert tx.unchanged([job], found_in) == []
