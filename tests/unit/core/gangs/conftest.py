import numpy as np
import pytest

from fpga_pool.core.gangs.gangs import Gangs
from fpga_pool.core.gangs.tiers import Tiers


@pytest.fixture
def make_view():
    """Return a function that makes a view of processors, with gangs as (width, estimate) or (width, estimate, usage).

    The first `arrived` gangs wait, by default all.
    """

    def make(processors, *gangs, migration_s=20.0, patience=0.0, trial_s=0.0, arrived=None):
        rows = [gang if len(gang) == 3 else (*gang, 0.5) for gang in gangs]
        width, estimate_s, usage = (np.array(column) for column in zip(*rows, strict=True))
        gangs = Gangs(width=width, estimate_s=estimate_s, usage=usage)
        view = Tiers(processors, gangs, migration_s=migration_s, patience=patience, trial_s=trial_s)
        for gang in range(len(rows) if arrived is None else arrived):
            view.arrive(gang)
        return view

    return make


@pytest.fixture
def decide():
    """Return a function that applies all moves of a policy, and returns each as (gang, how, processors)."""

    def decided(policy, view, now_s=0.0):
        found = []
        for move in policy.decide(view, None, now_s, np.random.default_rng(0)):
            view.apply(move, now_s)
            found.append((move.gang, move.how.value, move.processors.tolist()))
        view.news_in_front = False
        return found

    return decided
