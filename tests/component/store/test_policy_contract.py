"""The contract of all implementations of model.transaction.Transaction for the memories of policies."""

import contextlib
from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict, DuplicateId
from fpga_pool.model.transaction import PolicyMemory, memory_uuid


@pytest.fixture
def memory():
    state = {"runs": 3, "means": [0.5, 1e-9, None], "of": {"Märchen": True}}
    return PolicyMemory(
        uuid=memory_uuid("shard-0", "batch", "learned"), shard="shard-0", family="batch", policy="learned", state=state,
        watched=("a", "b"),
    )  # fmt: skip


def test_a_memory_reads_back_equal(begin, memory):
    with begin() as tx:
        assert tx.policy_memory(memory.uuid) is None
        tx.add(memory)
    with begin() as tx:
        assert tx.policy_memory(memory.uuid) == memory
        with pytest.raises(DuplicateId):
            tx.add(memory)


def test_a_memory_is_replaced_whole_and_not_by_somebody_who_has_not_seen_it(begin, saved, memory):
    saved(memory)
    with begin() as tx:
        tx.save(replace(memory, state=None, watched=()))
    with begin() as tx:
        assert tx.policy_memory(memory.uuid) == replace(memory, state=None, watched=(), generation=1)
    with begin() as tx, pytest.raises(Conflict):
        tx.save(replace(memory, state={"late": True}))


def test_a_memory_is_kept_with_what_is_committed_or_not_at_all(begin, memory):
    with contextlib.suppress(ZeroDivisionError), begin() as tx:
        tx.add(memory)
        raise ZeroDivisionError
    with begin() as tx:
        assert tx.policy_memory(memory.uuid) is None
