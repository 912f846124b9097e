"""The store in memory fulfills the contract of all stores: it runs the same tests as the SQL store."""

import importlib.util
from pathlib import Path

import pytest

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.sim.store import MemoryStore

from .conftest import OWNER, SHARD, Backend


def _load(name):
    spec = importlib.util.spec_from_file_location(f"memory_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_contract, _gang_contract = _load("test_contract"), _load("test_gang_contract")
_task_contract, _policy_contract = _load("test_task_contract"), _load("test_policy_contract")
task, memory = _task_contract.task, _policy_contract.memory
for module in (_contract, _gang_contract, _task_contract, _policy_contract):
    globals().update({name: test for name, test in vars(module).items() if name.startswith("test_")})


@pytest.fixture
def backend():
    store = MemoryStore()
    shard = store.acquire_shard(SHARD, OWNER, 100.0)
    return Backend(
        lambda: store.transaction(shard.name, shard.owner, shard.epoch), lambda: store.undelivered(shard.name, 100)
    )


def test_only_the_owner_in_its_epoch_may_begin_a_transaction():
    store = MemoryStore()
    first = store.acquire_shard("s", "me", 0.0)
    store.acquire_shard("s", "me", 1.0)
    for owner, epoch in [("me", first.epoch), ("you", first.epoch + 1)]:
        with pytest.raises(StaleEpoch, match=f"shard s: {owner} does not own it in epoch {epoch}"):
            store.transaction("s", owner, epoch).__enter__()


def test_what_was_delivered_leaves_the_outbox(make):
    store = MemoryStore()
    shard = store.acquire_shard(SHARD, "me", 0.0)
    commands = [make.command(sequence) for sequence in (1, 2, 3)]
    with store.transaction(shard.name, "me", 1) as tx:
        for command in commands:
            tx.send(command)
    store.delivered(shard.name, "me", 1, {commands[1].id})
    assert store.undelivered(shard.name, 100) == [commands[0], commands[2]]
    assert store.undelivered(shard.name, 1) == [commands[0]]
    assert store.undelivered("another", 100) == []
