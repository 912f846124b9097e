"""The contract that every gang policy must keep."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.gangs.gangs import Gangs, How
from fpga_pool.core.gangs.tiers import Tiers

FROM_QUEUE = {How.START, How.START_BEHIND, How.TRY}
TO_BACKGROUND = {How.START_BEHIND, How.TRY}
MIGRATION_S = 5.0


@pytest.fixture(params=policy_names("gang"))
def policy(request):
    return load_policy("gang", request.param)


@st.composite
def cases(draw):
    """Draw a number of processors, and gangs as (width, estimate, usage, seconds after the one before)."""
    processors = draw(st.integers(1, 6))
    gang = st.tuples(
        st.integers(1, processors),
        st.sampled_from([1.0, 5.0, 20.0, 100.0]),
        st.sampled_from([0.1, 0.5, 0.9, 1.0]),
        st.sampled_from([0.0, 0.0, 1.0, 30.0]),
    )
    return processors, draw(st.lists(gang, min_size=1, max_size=12))


class Walk:
    """A pool that carries out a policy's moves, with an independent record of which gang is where.

    Gangs in the foreground end by their estimates; those in the background make no progress.
    """

    def __init__(self, policy, processors, rows):
        width, estimate_s, usage, after_s = (np.array(column) for column in zip(*rows, strict=True))
        gangs = Gangs(width=width, estimate_s=estimate_s, usage=usage)
        self._policy, self._width, self._arrival_s = policy, width, np.cumsum(after_s)
        self._view = Tiers(processors, gangs, migration_s=MIGRATION_S, patience=policy.patience, trial_s=policy.trial_s)
        self._rng = np.random.default_rng(7)
        #: The processors of each running gang, by tier.
        self._front, self._behind = {}, {}
        self._waiting = set()
        self.moves = []

    def run(self):
        arriving = list(range(len(self._width)))
        while arriving or self._waiting or self._front or self._behind:
            end_s = min(map(self._view.end_s, self._front), default=np.inf)
            if arriving and self._arrival_s[arriving[0]] <= end_s:
                now_s = self._arrival_s[arriving[0]]
                self._view.arrive(arriving[0], now_s)
                self._waiting.add(arriving.pop(0))
            else:
                assert self._front, "nobody runs in the foreground, and somebody waits"
                now_s = end_s
                gang = min(self._front, key=self._view.end_s)
                self._view.finish(gang)
                del self._front[gang]
            self._decide(now_s)
        return self.moves

    def _decide(self, now_s):
        for move in self._policy.decide(self._view, None, now_s, self._rng):
            self._follow(move)
            self._view.apply(move, now_s)
        self._view.news_in_front = False

    def _follow(self, move):
        gang, how, processors = move.gang, move.how, move.processors.tolist()
        self.moves.append((gang, how, tuple(processors)))
        assert len(set(processors)) == len(processors) == self._width[gang]
        assert set(processors) <= set(range(self._view.processors))
        if how in FROM_QUEUE:
            self._waiting.remove(gang)
        else:
            left = self._behind.pop(gang)
            assert how is not How.SWAP or sorted(left) == sorted(processors)
        tier = self._behind if how in TO_BACKGROUND else self._front
        assert not set(processors) & {processor for others in tier.values() for processor in others}
        tier[gang] = processors


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_each_move_is_possible_and_every_gang_has_its_turn(policy, case):
    assert {gang for gang, *_ in Walk(policy, *case).run()} == set(range(len(case[1])))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_the_same_happens_again(policy, case):
    assert Walk(policy, *case).run() == Walk(policy, *case).run()


def test_a_gang_that_comes_alone_starts_at_once_in_the_foreground(policy):
    assert Walk(policy, 4, [(3, 10.0, 0.5, 0.0)]).run() == [(0, How.START, (0, 1, 2))]


def test_a_gang_that_needs_all_processors_gets_them_however_many_small_ones_follow(policy):
    small = (1, 5.0, 0.5, 0.0)
    moves = Walk(policy, 2, [small, (2, 100.0, 1.0, 0.0), *[small] * 8]).run()
    assert [gang for gang, how, _ in moves if how not in TO_BACKGROUND].count(1) == 1


def test_nobody_decides_anything_where_nobody_waits(policy):
    view = Tiers(2, Gangs(width=[1], estimate_s=[1.0], usage=[0.5]), patience=policy.patience, trial_s=policy.trial_s)
    assert list(policy.decide(view, None, 0.0, np.random.default_rng(0))) == []
