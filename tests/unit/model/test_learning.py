"""Policies that learn: the events they receive, and the state that is kept for the next owner of the shard."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.model.cycle import Cycle, CycleSnapshot, Decision, Outcome
from fpga_pool.model.objects.pool import Job, JobState
from fpga_pool.model.transaction import memory_uuid
from fpga_pool.sim.store import MemoryStore


class Counting:
    """A policy that records the events it receives, and counts them by kind."""

    name = "counting"

    def __init__(self):
        self.told, self.breaks = [], False

    def observe(self, event, state):
        if self.breaks:
            raise ZeroDivisionError
        self.told.append(event)
        counts = dict(state or {})
        counts[event["event"]] = counts.get(event["event"], 0) + 1
        return counts


class Jobs:
    """A family that places waiting jobs, and records the learned state at each decision."""

    name, waits = "jobs", False

    def __init__(self, policy):
        self._policy, self.states = policy, []

    def snapshot(self, tx, now_s):
        waiting = [job for job in tx.batch_jobs("b") if job.state is JobState.PENDING]
        return CycleSnapshot(view=waiting, policy=self._policy, now_s=now_s)

    def decide(self, look, state, rng):
        self.states.append(state)
        return Decision(wanted=look.view or None)

    def commit(self, tx, look, wanted, now_s):
        placed = [change(tx, job, JobState.RUNNING) for job in wanted]
        return Outcome(changed=True, placed=tuple(placed))

    def work(self, tx, uuids):
        return tx.jobs(uuids)


def change(tx, job, state):
    saved = tx.job(job.uuid)
    tx.save(replace(saved, state=state))
    return tx.job(job.uuid)


class Pool:
    """A shard with two jobs, owned by one scheduler after another."""

    def __init__(self):
        self.store, self.now_s = MemoryStore(), 10.0
        self.take_over("first")
        with self.tx() as tx:
            tx.add(*(self._job(index) for index in range(2)))

    def _job(self, index):
        about = {"batch_uuid": "b", "project_id": "p", "user_id": "u", "name": "", "function": "aes"}
        return Job(uuid=f"b.{index}", index=index, requester="h", input_bytes=1, created_at=0.0, shard="s", **about)

    def take_over(self, owner):
        self._shard = self.store.acquire_shard("s", owner, self.now_s)

    @contextmanager
    def tx(self):
        with self.store.transaction("s", self._shard.owner, self._shard.epoch) as tx:
            yield tx

    def cycle(self, policy):
        rng = np.random.default_rng(0)
        return Cycle(
            Jobs(policy), reading=self.tx, transactions=self.tx, dispatch=lambda: None, clock=lambda: self.now_s,
            timer=lambda: 0.0, rng=rng,
        )  # fmt: skip

    def end(self, uuid, state=JobState.COMPLETED):
        with self.tx() as tx:
            change(tx, tx.job(uuid), state)

    def memory(self):
        with self.tx() as tx:
            return tx.policy_memory(memory_uuid("s", "jobs", "counting"))


@pytest.fixture
def pool():
    return Pool()


def test_a_policy_is_told_what_was_placed_and_what_has_ended_since(pool):
    policy = Counting()
    cycle = pool.cycle(policy)
    cycle.run()
    assert cycle.family.states == [None]
    assert [(told["event"], told["uuid"], told["at"]) for told in policy.told] == [
        ("placed", "b.0", 10.0),
        ("placed", "b.1", 10.0),
    ]
    pool.end("b.1")
    pool.now_s = 20.0
    cycle.run()
    assert cycle.family.states[-1] == {"placed": 2, "ended": 1}
    assert policy.told[-1] == policy.told[1] | {"event": "ended", "at": 20.0, "state": "COMPLETED"}
    assert pool.memory().watched == ("b.0",)


def test_work_that_has_lost_its_place_has_ended_and_is_placed_again(pool):
    policy = Counting()
    cycle = pool.cycle(policy)
    cycle.run()
    pool.end("b.0", JobState.PENDING)
    cycle.run()
    assert [(told["event"], told["state"]) for told in policy.told[2:]] == [("ended", "PENDING"), ("placed", "RUNNING")]
    assert pool.memory().watched == ("b.0", "b.1")


def test_whoever_takes_over_goes_on_with_what_was_learned(pool):
    pool.cycle(Counting()).run()
    pool.end("b.0")
    pool.take_over("second")
    successor = pool.cycle(Counting())
    successor.run()
    assert successor.family.states == [{"placed": 2, "ended": 1}]
    # A state learned without a decision is stored as well.
    assert pool.memory().state == {"placed": 2, "ended": 1}


def test_what_is_learned_is_committed_with_the_decision_or_not_at_all(pool):
    cycle = pool.cycle(Counting())

    def commit(*_):
        raise OSError("disk full")

    cycle.family.commit = commit
    with pytest.raises(OSError, match="disk full"):
        cycle.run()
    assert pool.memory() is None


def test_a_policy_that_cannot_learn_decides_with_what_it_knew(pool):
    policy = Counting()
    cycle = pool.cycle(policy)
    cycle.run()
    pool.end("b.0")
    policy.breaks = True
    result = cycle.run()
    assert [failure.message for failure in result.failures] == [
        "jobs policy counting failed to learn from reported events"
    ]
    assert cycle.family.states[-1] == {"placed": 2}


def test_a_state_that_is_no_plain_data_is_refused_before_it_is_committed(pool):
    policy = Counting()
    policy.observe = lambda event, state: {"at": {1, 2}}
    result = pool.cycle(policy).run()
    assert len(result.failures) == 1
    assert pool.memory().state is None


def test_a_policy_that_does_not_learn_has_no_memory(pool):
    class Plain:
        name = "counting"

    assert pool.cycle(Plain()).run().outcome.changed
    assert pool.memory() is None


def test_a_policy_that_changes_its_state_in_place_has_it_stored_and_breaks_nothing(pool):
    class InPlace(Counting):
        def observe(self, event, state):
            state = {} if state is None else state
            state[event["event"]] = state.get(event["event"], 0) + 1
            if self.breaks and event["uuid"] == "b.1":
                raise ZeroDivisionError
            return state

    policy = InPlace()
    cycle = pool.cycle(policy)
    cycle.run()
    pool.end("b.0")
    pool.end("b.1")
    policy.breaks = True
    cycle.run()
    assert pool.memory().state == {"placed": 2}
    pool.end("b.0", JobState.PENDING)
    policy.breaks = False
    cycle.run()
    assert pool.memory().state == {"placed": 3}
