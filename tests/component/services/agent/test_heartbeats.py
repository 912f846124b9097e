"""Which heartbeats an agent sends in full, which as life signs, and which it leaves out."""

import pytest

from fpga_pool.model.exceptions import ServiceUnavailable


@pytest.fixture
def bench(new_bench, until):
    bench = new_bench(heartbeat_s=100.0)  # no regular heartbeat
    until(lambda: bench.scheduler.heartbeats)
    bench.scheduler.due_s = bench.scheduler.full_due_s = 1000.0
    bench.agent.heartbeats.send()
    return bench


def sent(bench):
    """Return the numbers of full heartbeats and of life signs so far."""
    return len(bench.scheduler.heartbeats), len(bench.scheduler.life_signs)


def test_a_heartbeat_that_says_nothing_new_is_left_out_until_one_is_due(bench, until):
    heartbeats = bench.agent.heartbeats
    assert not heartbeats.send_if_due()
    bench.execute(bench.commands.assign("j"))
    assert heartbeats.send_if_due()
    until(lambda: not heartbeats.send_if_due())
    full, _ = sent(bench)
    bench.scheduler.due_s = bench.scheduler.full_due_s = 150.0  # the next but one regular heartbeat would be too late
    heartbeats.send()
    assert not heartbeats.send_if_due()
    bench.scheduler.due_s = bench.scheduler.full_due_s = 99.0
    heartbeats.send()
    assert heartbeats.send_if_due()
    assert sent(bench) == (full + 3, 0)


def test_after_a_heartbeat_that_was_not_accepted_the_next_one_is_sent(bench):
    bench.scheduler.away = True
    with pytest.raises(ServiceUnavailable):
        bench.agent.heartbeats.send()
    bench.scheduler.away = False
    assert bench.agent.heartbeats.send_if_due()


@pytest.fixture
def resting(bench):
    """Return an agent whose life signs are always due, and whose heartbeats are not."""
    bench.scheduler.due_s = 0.0
    bench.agent.heartbeats.send()
    return bench


def test_a_life_sign_is_sent_instead_of_a_heartbeat_that_says_nothing_new(resting):
    before, _ = sent(resting)
    for _ in range(2):
        assert resting.agent.heartbeats.send_if_due()
    assert sent(resting) == (before, 2)
    last = resting.scheduler.heartbeats[-1]
    first, second = resting.scheduler.life_signs
    assert last.beat < first.beat < second.beat
    assert (last.host, last.agent_id, last.boot) == (second.host, second.agent_id, second.boot)


def test_a_full_heartbeat_follows_in_time(resting):
    resting.scheduler.full_due_s = 99.0
    resting.agent.heartbeats.send()
    before = sent(resting)
    assert resting.agent.heartbeats.send_if_due()
    assert sent(resting) == (before[0] + 1, before[1])


def test_news_and_work_are_told_by_full_heartbeats(resting):
    resting.execute(resting.commands.assign("j"))
    before = sent(resting)
    for _ in range(2):  # the second one says nothing new, but the host has work
        assert resting.agent.heartbeats.send_if_due()
    assert sent(resting) == (before[0] + 2, before[1])


def test_after_a_life_sign_that_could_not_be_sent_a_full_heartbeat_is(resting):
    resting.scheduler.away = True
    with pytest.raises(ServiceUnavailable):
        resting.agent.heartbeats.send_if_due()
    resting.scheduler.away = False
    before = sent(resting)
    assert resting.agent.heartbeats.send_if_due()
    assert sent(resting) == (before[0] + 1, before[1])


def test_a_life_sign_is_not_an_answer(resting):
    age_s = resting.agent.heartbeats.age_s()
    resting.agent.heartbeats.send_if_due()
    assert resting.agent.heartbeats.age_s() > age_s
