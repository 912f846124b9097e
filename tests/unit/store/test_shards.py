"""Who owns a shard, what a replaced owner can still do (nothing), and the outbox of the owner."""

import pytest

from fpga_pool.model.exceptions import Conflict, NotFound, StaleEpoch


def test_a_new_shard_goes_to_whoever_asks_first(store):
    shard = store.acquire_shard("s", "one", now_s=100.0, expired_before=90.0)
    assert (shard.name, shard.owner, shard.epoch, shard.renewed_at) == ("s", "one", 1, 100.0)
    with pytest.raises(Conflict, match=r"shard s: one owns it \(epoch 1\)"):
        store.acquire_shard("s", "two", now_s=101.0, expired_before=91.0)


def test_a_restarted_owner_gets_its_shard_back_in_a_new_epoch(store):
    store.acquire_shard("s", "one", now_s=100.0, expired_before=90.0)
    assert store.acquire_shard("s", "one", now_s=101.0, expired_before=91.0).epoch == 2


def test_a_shard_that_was_not_renewed_can_be_taken_and_its_old_owner_is_fenced_off(store, make):
    lost = store.acquire_shard("s", "one", now_s=100.0, expired_before=90.0)
    taken = store.acquire_shard("s", "two", now_s=111.0, expired_before=101.0)
    assert (taken.owner, taken.epoch) == ("two", 2)
    with pytest.raises(StaleEpoch, match="one does not own it in epoch 1"), store.transaction("s", "one", 1) as tx:
        tx.add(make.batch())
    with pytest.raises(StaleEpoch):
        store.renew_shard(lost, now_s=112.0)
    with store.reading() as tx:
        assert list(tx.batches()) == []


def test_a_renewed_shard_is_not_taken(store):
    shard = store.acquire_shard("s", "one", now_s=100.0, expired_before=90.0)
    assert store.renew_shard(shard, now_s=110.0).renewed_at == 110.0
    with pytest.raises(Conflict):
        store.acquire_shard("s", "two", now_s=111.0, expired_before=101.0)


def test_a_released_shard_is_free_at_once_and_its_epoch_is_not_used_again(store):
    shard = store.acquire_shard("s", "one", now_s=100.0, expired_before=90.0)
    store.release_shard(shard)
    assert store.acquire_shard("s", "two", now_s=100.0, expired_before=90.0).epoch == 2
    store.release_shard(shard)  # lost already: nothing happens to the new owner
    assert store.acquire_shard("s", "two", now_s=100.0, expired_before=90.0).epoch == 3


def test_an_unknown_shard_cannot_be_worked_on(store):
    with pytest.raises(StaleEpoch), store.transaction("nowhere", "one", 1):
        pass
    with pytest.raises(NotFound, match="no shard nowhere"), store.reading("nowhere"):
        pass


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
    store.acquire_shard(shard.name, "successor", now_s=200.0, expired_before=150.0)
    with pytest.raises(StaleEpoch):
        store.delivered(shard.name, shard.owner, shard.epoch, [command.id])
    assert outbox() == [command]


def test_the_outbox_of_a_shard_is_its_own(store, shard, begin, make):
    store.acquire_shard("other", "scheduler-1", now_s=100.0, expired_before=0.0)
    with begin() as tx:
        tx.send(make.command())
    assert store.undelivered("other", limit=10) == []
