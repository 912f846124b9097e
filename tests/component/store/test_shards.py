"""The ownership of shards, the fencing of replaced owners, and the outbox of the owner."""

from dataclasses import replace

import pytest
from sqlalchemy import event

from fpga_pool.model.exceptions import Conflict, NotFound, StaleEpoch
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.hosts import ApiProcess
from fpga_pool.model.objects.pool import Scheduler
from fpga_pool.store.designs import remove_design


@pytest.fixture
def acquire(store):
    """Return a function that acquires the shard `s`."""
    store.ensure_shards(["s"], now_s=99.0)
    return lambda owner, **seen: store.acquire_shard("s", owner, now_s=100.0, **seen)


def test_a_free_shard_goes_to_whoever_asks_first(acquire):
    shard = acquire("one")
    assert (shard.name, shard.owner, shard.epoch, shard.renewed_at) == ("s", "one", 1, 100.0)
    with pytest.raises(Conflict, match=r"shard s: one owns it \(epoch 1\)"):
        acquire("two")


def test_a_shard_that_exists_is_left_as_it_is(store, acquire):
    owned = acquire("one")
    store.ensure_shards(["s", "t"], now_s=200.0)
    with store.reading() as tx:
        assert [(shard.name, shard.owner) for shard in tx.shards()] == [("s", "one"), ("t", "")]
        assert tx.shards()[0] == owned


def test_a_restarted_owner_gets_its_shard_back_in_a_new_epoch(acquire):
    acquire("one")
    assert acquire("one").epoch == 2


def test_a_shard_that_was_not_renewed_can_be_taken_and_its_old_owner_is_fenced_off(store, acquire, make):
    lost = acquire("one")
    taken = acquire("two", expired=lost)
    assert (taken.owner, taken.epoch) == ("two", 2)
    with pytest.raises(StaleEpoch, match="one does not own it in epoch 1"), store.transaction("s", "one", 1) as tx:
        tx.add(make.batch())
    with pytest.raises(StaleEpoch):
        store.renew_shard(lost, now_s=112.0)
    with store.reading() as tx:
        assert list(tx.batches()) == []


def test_a_shard_that_was_renewed_meanwhile_is_not_taken(store, acquire):
    seen = acquire("one")
    store.renew_shard(seen, now_s=110.0)
    with store.reading() as tx:
        assert tx.shards()[0].renewed_at == 110.0
    with pytest.raises(Conflict):
        acquire("two", expired=seen)


def test_a_shard_that_changed_hands_meanwhile_is_not_taken(acquire):
    seen = acquire("one")
    acquire("two", expired=seen)
    with pytest.raises(Conflict, match="two owns it"):
        acquire("three", expired=seen)


def test_a_released_shard_is_free_at_once_and_its_epoch_is_not_used_again(store, acquire):
    shard = acquire("one")
    store.release_shard(shard)
    assert acquire("two").epoch == 2
    store.release_shard(shard)  # the shard was lost already: the new owner is not affected
    assert acquire("two").epoch == 3


def test_an_unknown_shard_cannot_be_worked_on(store):
    with pytest.raises(StaleEpoch), store.transaction("nowhere", "one", 1):
        pass
    with pytest.raises(NotFound, match="no shard nowhere"), store.transaction("nowhere"):
        pass
    with store.reading("nowhere") as tx, pytest.raises(NotFound, match="no shard nowhere"):
        assert tx.shard
    with pytest.raises(NotFound, match="no shard nowhere"):
        store.acquire_shard("nowhere", "one", now_s=1.0)


def test_a_request_is_carried_out_for_whoever_owns_the_shard(store, shard, make):
    with store.transaction(shard.name) as tx:
        assert (tx.shard.owner, tx.shard.epoch, tx.shard.pool_generation) == (shard.owner, 1, 0)
        tx.add(make.host())
    with store.reading(shard.name) as tx:
        assert tx.shard.pool_generation == 1


def test_a_transaction_begins_with_one_statement_which_says_in_which_generation(store, acquire, make):
    acquire("one")
    said = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: said.append(call[2]))
    found = []
    for place, (owner, statements) in enumerate([("", 3), ("", 2), ("one", 2), ("two", 4), ("two", 2)]):
        if owner == "two" and len(found) == 3:
            acquire(owner, expired=acquire("one"))  # requests do not know the new owner yet
        said.clear()
        with store.transaction("s", *([owner, 1] if owner == "one" else [])) as tx:
            found.append(tx.shard)
            assert len(said) == statements, said
            tx.add(make.batch(name=f"batch {place}"))
    assert [(one.owner, one.epoch, one.pool_generation) for one in found] == [
        *[("one", 1, generation) for generation in range(3)],
        *[("two", 3, generation) for generation in (3, 4)],
    ]


def test_a_transaction_on_a_shard_lists_what_is_its_own_and_all_hosts(store, shard, begin, make, saved):
    store.ensure_shards(["other"], now_s=1.0)
    batch = make.batch()
    saved(batch, make.host("a"), make.host("b", shard="other"))
    slots = saved(make.slot("a"), make.slot("b", shard="other"))
    saved(make.job(batch), make.job(batch, shard="other", index=1), *map(make.lease, slots))
    with begin() as ours, store.reading() as all_of_it:
        assert [[host.name for host in tx.hosts()] for tx in (ours, all_of_it)] == [["a", "b"]] * 2
        assert [[slot.host for slot in tx.slots()] for tx in (ours, all_of_it)] == [["a"], ["a", "b"]]
        assert [len(tx.pending_jobs([batch.uuid])) for tx in (ours, all_of_it)] == [1, 2]
        assert [len(tx.leases()) for tx in (ours, all_of_it)] == [1, 2]
        assert ours.hosts_by_shard() == {"default": 1, "other": 1}
        assert ours.jobs_by_shard() == {shard.name: 1, "other": 1}


def test_a_scheduler_is_known_by_its_beats(store):
    store.beat("one", now_s=5.0)
    store.beat("one", now_s=6.0)
    store.beat("two", now_s=6.0)
    store.forget(Scheduler, "two")
    with store.reading() as tx:
        assert [(known.name, known.heard_at, known.generation) for known in tx.schedulers()] == [("one", 6.0, 1)]


def test_a_process_of_the_api_is_no_scheduler(store):
    store.beat("one:1", 5.0, ApiProcess)
    store.beat("one:1", 6.0, ApiProcess)
    store.beat("one:2", 6.0, ApiProcess)
    store.forget(ApiProcess, "one:2", "one:3")
    with store.reading() as tx:
        assert [(known.name, known.heard_at, known.generation) for known in tx.api_processes()] == [("one:1", 6.0, 1)]
        assert tx.schedulers() == []


def test_delivered_commands_leave_the_outbox_and_the_others_stay_in_order(store, shard, begin, outbox, make):
    commands = [make.command(sequence) for sequence in range(5)]
    with begin() as tx:
        for command in commands:
            tx.send(command)
    assert store.undelivered(shard.name, limit=2) == commands[:2]
    store.delivered(shard.name, shard.owner, shard.epoch, [commands[0].id, commands[3].id])
    assert outbox() == [commands[1], commands[2], commands[4]]


def test_a_replaced_owner_cannot_take_commands_out_of_the_outbox(store, shard, begin, outbox, make):
    with begin() as tx:
        tx.send(command := make.command())
    store.acquire_shard(shard.name, "successor", now_s=200.0, expired=shard)
    with pytest.raises(StaleEpoch):
        store.delivered(shard.name, shard.owner, shard.epoch, [command.id])
    assert outbox() == [command]


def test_the_outbox_of_a_shard_is_its_own(store, shard, begin, make):
    store.ensure_shards(["other"], now_s=1.0)
    store.acquire_shard("other", "scheduler-1", now_s=100.0)
    with begin() as tx:
        tx.send(make.command())
    assert store.undelivered("other", limit=10) == []


def test_commands_for_hosts_that_are_served_are_left_out(store, shard, begin, make):
    commands = [make.command(sequence, host=f"host-{sequence}") for sequence in range(2)]
    with begin() as tx:
        for command in commands:
            tx.send(command)
    assert store.undelivered(shard.name, limit=10, but_for={"host-0"}) == [commands[1]]


@pytest.mark.parametrize("per_host", [2, 3])
def test_acknowledged_commands_are_not_read_again_and_do_not_count(store, shard, begin, make, per_host):
    commands = [make.command(sequence) for sequence in range(5)]
    with begin() as tx:
        for command in commands:
            tx.send(command)
    acknowledged = {commands[0].id, commands[2].id}
    waiting = [commands[1], commands[3], commands[4]]
    assert store.undelivered(shard.name, limit=10, per_host=per_host, acknowledged=acknowledged) == waiting[:per_host]


def test_the_outbox_is_read_fairly(store, shard, begin, make):
    many = [make.command(sequence, host="many") for sequence in range(5)]
    few = [make.command(sequence, host="few") for sequence in range(2)]
    with begin() as tx:
        for command in (*many, *few):
            tx.send(command)
    assert store.undelivered(shard.name, limit=10, per_host=3) == many[:3] + few
    # The oldest commands of all hosts come before the second of any host.
    assert store.undelivered(shard.name, limit=2) == [many[0], few[0]]
    assert store.undelivered(shard.name, limit=3) == [*many[:2], few[0]]


def test_few_commands_are_read_without_an_order_of_all(store, shard, begin, make):
    commands = [make.command(sequence) for sequence in range(4)]
    with begin() as tx:
        for command in commands:
            tx.send(command)
    said = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: said.append("row_number" in call[2]))
    assert store.undelivered(shard.name, limit=10, per_host=4) == commands
    assert store.undelivered(shard.name, limit=10, per_host=3) == commands[:3]
    assert said == [False, False, True]


def test_a_change_of_designs_locks_all_shards_by_name_once_and_last(store, make, acquire):
    acquire("one")
    said, design = [], make.design()
    event.listen(store.engine, "before_cursor_execute", lambda *call: said.append(call[2]))

    def of_shards(begin, change):
        said.clear()
        with begin as tx:
            change(tx)
            tx.flush()  # as if another request of the group counted the usage of a project
            assert not [one for one in said if "UPDATE shards SET pool_generation=(shards." in one]
            tx.flush()
        return [one.split()[0] for one in said[-2:]], sum("SELECT shards.name" in one for one in said[:-2])

    for change in (
        lambda tx: tx.add(design),
        lambda tx: tx.save(replace(tx.design(design.uuid), state=DesignState.APPROVED)),
        lambda tx: remove_design(tx, design),
    ):
        assert of_shards(store.admission(), change) == (["SELECT", "UPDATE"], 0)
        assert "ORDER BY shards.name" in said[-2]
        assert "FOR UPDATE" in said[-2] or store.engine.dialect.name == "sqlite"
