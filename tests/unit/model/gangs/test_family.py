"""Gangs in the planning cycle: what the pool commits, and the events that a learning policy receives."""

import numpy as np

from fpga_pool.core.gangs.paper import Easy
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.rules.gang.family import GangFamily

from .test_rules import exit_all


class Learning(Easy):
    """A policy that learns the final state of each gang, and records the learned state at each decision."""

    def __init__(self):
        super().__init__()
        self.states = []

    def observe(self, event, state):
        return {**(state or {}), event["uuid"]: event["state"]}

    def decide(self, view, state, now_s, rng):
        self.states.append(state)
        return super().decide(view, state, now_s, rng)


def test_a_gang_policy_decides_with_what_became_of_its_gangs(new_gang_pool):
    pool, policy = new_gang_pool({"h0": 1}), Learning()
    cycle = Cycle(
        GangFamily(pool.settings, policy), reading=pool.tx, transactions=pool.tx, dispatch=lambda: None,
        clock=lambda: pool.now_s, timer=lambda: 0.0, rng=np.random.default_rng(0),
    )  # fmt: skip
    first, second = pool.create(), pool.create()
    result = cycle.run()
    assert (result.outcome.changed, [gang.uuid for gang in result.outcome.placed]) == (True, [first])
    assert result.outcome.summary == "of 2 gangs 1 moved, 0 postponed, by easy"
    for _ in range(2):
        pool.deliver("h0")
        pool.work("h0")
        pool.tell("h0")
        exit_all(pool, first)
    assert [gang.uuid for gang in cycle.run().outcome.placed] == [second]
    assert policy.states == [None, {first: "COMPLETED"}]
