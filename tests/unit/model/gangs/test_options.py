"""The effects of the options of `measy_plus` in the pool, and when the foreground is reassigned."""

from dataclasses import replace

import pytest

from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.gangs import LaunchProcess, ProcessExited, SetTier
from fpga_pool.model.objects.gangs import GangState, Process
from fpga_pool.model.rules.gang.family import GangFamily

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND


def exit_all(pool, uuid):
    for name, host in pool.hosts.items():
        for key in [key for key in host.running if key[0] == uuid]:
            host.drop(key, ProcessExited)
        pool.tell(name)


def priorities(pool, *gangs):
    """Return the tier of each gang's processes, as commanded to their hosts."""
    told = {key[0]: launch.tier for host in pool.hosts.values() for key, (_, launch) in host.held.items()}
    return tuple(told[gang] for gang in gangs)


@pytest.fixture
def trying(new_gang_pool):
    """Return a pool of two processors, a long gang on both, and one behind it on the first, in a trial of 60 s."""
    pool = new_gang_pool({"h0": 1, "h1": 1}, policy="measy_plus:trial_s=60")
    long = pool.create(2, runtime_s=10_000.0)
    pool.settle()
    short = pool.create(runtime_s=500.0)
    assert pool.plan() == [short]
    return pool, long, short


def test_a_gang_that_is_tried_comes_first_and_who_gives_way_ends_later(trying):
    pool, long, short = trying
    ends_at = pool.gang(long).ends_at
    told = [command.action for command in pool.store.undelivered("s", 10)]
    assert [(type(action), action.gang, action.tier) for action in told] == [
        (SetTier, long, BEHIND),  # first, since the launch needs this place
        (LaunchProcess, short, FRONT),
    ]
    assert ends_at == pool.gang(long).started_at + 10_000.0 + 60.0
    assert (pool.gang(long).state, pool.gang(short).state) == (GangState.FOREGROUND, GangState.BACKGROUND)
    pool.settle()
    assert pool.gang(long).gave_way_s == 60.0


def test_a_trial_ends_when_its_time_is_over_also_under_another_owner_of_the_shard(trying):
    pool, long, short = trying
    pool.settle()
    pool.now_s += 59.0
    pool.settle()
    assert pool.gang(short).trial_ends_at is not None
    pool.family = GangFamily(pool.settings, pool.policy)
    pool.now_s += 1.0
    pool.settle()
    assert pool.gang(short).trial_ends_at is None
    assert {process.exchanged for process in pool.store.all(Process)} == {False}
    assert set(priorities(pool, long)) == {FRONT}
    assert priorities(pool, short) == (BEHIND,)


@pytest.mark.parametrize("ending", ["exits", "is cancelled"])
def test_a_gang_that_ends_in_its_trial_leaves_the_priority_to_who_gave_way(trying, ending):
    pool, long, short = trying
    pool.settle()
    exit_all(pool, short) if ending == "exits" else pool.cancel(short)
    pool.settle()
    assert pool.gang(short).state is (GangState.COMPLETED if ending == "exits" else GangState.CANCELLED)
    assert priorities(pool, long) == (FRONT,)
    assert not any(process.exchanged for process in pool.store.all(Process))


def test_a_trial_ends_when_a_gang_that_was_not_asked_comes_to_the_foreground(trying):
    pool, long, short = trying
    pool.settle()
    exit_all(pool, long)
    pool.settle()  # the gang in its trial, first in the queue, has been swapped to the foreground
    assert (pool.gang(short).state, pool.gang(short).trial_ends_at) == (GangState.FOREGROUND, None)
    behind = pool.create(2, runtime_s=20.0)
    pool.settle()
    assert pool.gang(behind).state is GangState.BACKGROUND
    pool.end()


def test_gangs_are_expected_to_run_as_long_as_the_last_ones_of_their_user(new_gang_pool):
    """Gangs of user u ran for 10 and 30 s, so its next one is expected to take 20 s and precedes another of 500 s."""
    pool = new_gang_pool({"h0": 1}, policy="measy_plus:last_runs=2")
    for done_s in (10.0, 30.0):
        gang = pool.create(runtime_s=900.0, user_id="u")
        pool.settle()
        (process,) = [process for process in pool.store.all(Process) if process.gang_uuid == gang]
        with pool.tx() as tx:
            tx.save(replace(tx.process(process.uuid), done_s=done_s, rate=0.0))
        exit_all(pool, gang)
        assert pool.gang(gang).ran_s == done_s
    pool.create(user_id="w", cpu_usage=0.3)
    pool.settle()
    other, mine = pool.create(runtime_s=500.0, user_id="v"), pool.create(runtime_s=900.0, user_id="u")
    assert (pool.gang(other).expected_s, pool.gang(mine).expected_s) == (500.0, 20.0)
    assert pool.plan() == [mine]  # to the background, which has room for one


def test_the_foreground_is_given_away_only_after_an_arrival_or_a_departure(new_gang_pool):
    """Section 2.2: steps 1 and 2 follow events in the foreground, not every planning cycle.

    Two gangs run on 2 of 4 processors, until 100 and 200 s.  Two more arrive together.  The head is too wide to start
    and is placed in the background.  Its reservation was at 100 s, so the other gang, of 150 s, may not start.  With a
    reservation from its present place, at 200 s, the other gang could start: it does so when the next gang arrives.
    """
    pool = new_gang_pool({"h0": 4}, policy="reasy")
    pool.create(runtime_s=100.0, cpu_usage=1.0)
    pool.create(runtime_s=200.0, cpu_usage=0.4)
    pool.settle()
    head, other = pool.create(3, runtime_s=50.0), pool.create(runtime_s=150.0)
    assert pool.plan() == [head]
    assert pool.plan() == []
    pool.create(4, runtime_s=5000.0)
    assert pool.plan() == [other]
