"""Several schedulers on one database: the ownership of shards, and what happens when a scheduler is gone."""

import pytest

from fpga_pool.model.exceptions import ServiceUnavailable, StaleEpoch, StorageFull
from fpga_pool.model.rules.shared.sharding import ShardRule
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.scheduler.ownership import LONGEST_TICK_S, REST_S, OwnedShard

TWO = ShardRule(number=2)
#: Long, because both schedulers run in this process: a busy machine must not make one of them appear dead.
SHARD_TIMEOUT_S = 30.0


@pytest.fixture
def pair(bench, until, jumping_clock):
    """Return two schedulers that share two shards, with a clock that reaches the timeout only if a test lets it."""
    bench.clock = jumping_clock
    one, two = (bench.new_service(name, shard_timeout_s=SHARD_TIMEOUT_S, shards=TWO) for name in ("one", "two"))
    bench.start(one)
    bench.start(two)
    until(lambda: len(one.ownership.shards()) == len(two.ownership.shards()) == 1)
    return one, two


def owners(bench):
    with bench.store.reading() as tx:
        return {shard.name: shard.owner for shard in tx.shards()}


def stall(service):
    """Stop the loops of a service, which appears to others like a SIGSTOP."""
    for loop in service._loops:
        loop.stop()


@pytest.fixture
def until_replaced(until, jumping_clock):
    """Return a function that lets the timeout pass until the other scheduler has replaced a stalled one."""

    def wait(condition):
        def pass_time():
            if condition():
                return True
            jumping_clock.ahead_s += SHARD_TIMEOUT_S
            return False

        until(pass_time)

    return wait


def test_the_first_scheduler_takes_everything_and_shares_it_with_the_second(bench, pair):
    assert sorted(owners(bench).values()) == ["one", "two"]


def test_a_scheduler_that_leaves_is_replaced_at_once(bench, pair, until):
    one, two = pair
    one.stop()
    until(lambda: two.ownership.shards() == ("shard-1", "shard-2"))


def test_only_a_scheduler_that_owns_all_shards_need_not_notify_the_others_of_work(bench, pair):
    assert [service.ownership.wake() for service in pair] == [False, False]
    starting = bench.new_service("starting", shards=TWO)
    assert not starting.ownership.wake()
    pair[0].stop()
    pair[1].ownership.step()
    assert pair[1].ownership.wake()


def test_an_owned_shard_is_stopped_once(bench, until, monkeypatch):
    stopped = []
    stop = OwnedShard.stop
    monkeypatch.setattr(OwnedShard, "stop", lambda self: stopped.append(self.shard.name) or stop(self))
    service = bench.start().service
    until(service.ownership.shards)
    # The embedded pool pauses its scheduler, lets its agents end, and then stops it.
    service.pause()
    service.stop()
    assert stopped == ["default"]
    assert owners(bench) == {"default": ""}


def test_a_scheduler_that_stalls_is_replaced_and_fenced_off(bench, pair, until_replaced):
    one, _two = pair
    (lost,) = one.ownership.shards()
    epoch = one.ownership._owned[lost].shard.epoch
    stall(one)
    until_replaced(lambda: set(owners(bench).values()) == {"two"})
    with pytest.raises(StaleEpoch), bench.store.transaction(lost, "one", epoch):
        pass
    # The scheduler resumes, finds that it has lost the shard, and gets one again when one is available.
    one.ownership.step()
    assert lost not in one.ownership.shards()


@pytest.mark.parametrize("error", [ServiceUnavailable, StorageFull])
def test_a_database_that_took_nothing_says_nothing_about_those_who_use_it(
    bench, pair, jumping_clock, monkeypatch, error
):
    one, two = pair
    before = owners(bench)
    stall(one)
    stall(two)
    two.ownership.step()
    jumping_clock.ahead_s += 1.2 * SHARD_TIMEOUT_S

    def refuse(*_):
        raise error("not now")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "beat", refuse)
        with pytest.raises(error):
            two.ownership.step()
    two.ownership.step()
    assert owners(bench) == before


def test_a_clock_that_is_behind_follows_the_pools_before_anything_else(bench, pair):
    bench.clock = SteadyClock()
    bench.clock._offset_s -= 3600.0
    late = bench.new_service("late", shards=TWO)
    late.ownership.follow_pool_time()
    with bench.store.reading() as tx:
        assert late.clock() >= min(shard.renewed_at for shard in tx.shards())


def test_a_new_owner_is_told_to_the_agents(bench, pair, until_replaced):
    one, _two = pair
    agent = bench.host()
    stall(one)
    (lost,) = one.ownership.shards()
    epoch = one.ownership._owned[lost].shard.epoch
    until_replaced(lambda: any(shard == lost and new > epoch for shard, new in agent.owners))


def test_work_of_a_lost_scheduler_goes_on_with_the_next(bench, pair, until, until_replaced):
    one, _two = pair
    agents = [bench.host(), bench.host()]
    stall(one)
    for owned in one.ownership._owned.values():
        owned.stop()
    batches = [bench.create(agent, "sha256", "sha256") for agent in agents for _ in range(3)]
    until_replaced(lambda: set(owners(bench).values()) == {"two"})
    until(lambda: all(bench.states(batch) == ["WAITING_INPUT"] * 2 for batch in batches))
    until(lambda: sum(len(agent.held) for agent in agents) == 12)


def test_hosts_join_both_shards_and_a_divided_batch_runs_in_both(bench, until):
    service = bench.new_service(shards=ShardRule(number=2, split_batches=True))
    bench.start(service)
    agents = [bench.host(), bench.host()]
    assert {host.shard for host in bench.api.hosts()} == {"shard-1", "shard-2"}
    batch = bench.create(agents[0], *["sha256"] * 6)
    until(lambda: bench.states(batch) == ["WAITING_INPUT"] * 6)
    assert {job.shard for job in bench.jobs(batch)} == {"shard-1", "shard-2"}
    until(lambda: all(len(agent.held) == 3 for agent in agents))
    assert bench.api.batch_detail("p", batch.uuid).batch.planned_makespan_s is not None
    bench.api.cancel_batch("p", batch.uuid)
    until(lambda: not any(agent.held for agent in agents))


def test_a_scheduler_that_cannot_be_reached_declares_no_host_lost(bench, until, jumping_clock, monkeypatch):
    bench.clock = jumping_clock
    service = bench.new_service(host_timeout_s=30.0)
    bench.start(service)
    bench.host()
    monkeypatch.setattr(service._peers, "describe", unreachable)
    silent = service.ownership._owned["default"]._hosts
    for _ in range(20):  # together longer than a host may be silent, but each shorter than a gap that excuses a tick
        until(lambda: silent.names == frozenset())
        jumping_clock.ahead_s += LONGEST_TICK_S / 1.5
    assert bench.api.hosts()[0].alive


def unreachable(_server):
    raise MessagingError("no broker")


def test_a_shard_without_open_work_rests_until_there_is_some_even_if_nobody_wakes_it(bench, until, monkeypatch):
    bench.start()
    agent, owned = bench.host(), bench.service.ownership._owned["default"]
    until(lambda: bench.service.ownership.rests())
    intervals_s = {name: loop._interval_s() for name, loop in owned.planning.items()}
    assert set(intervals_s.values()) == {owned._dispatching._interval_s()} == {REST_S}
    monkeypatch.setattr(bench.service, "work_arrived", lambda *families: None)  # as if it came to another scheduler
    batch = bench.create(agent, "sha256")
    until(lambda: bench.states(batch) == ["WAITING_INPUT"])
    assert not bench.service.ownership.rests()
    assert owned._dispatching._interval_s() == bench.service.settings.interval_s
    bench.report(bench.jobs(batch)[0], "staged", "started", "finished", "delivered")
    until(lambda: bench.service.ownership.rests())


def test_slots_may_load_ahead_also_while_a_shard_rests(bench, until):
    bench.start()
    agent, owned = bench.host(), bench.service.ownership._owned["default"]
    batch = bench.create(agent, "sha256", policy="benefit_plus")
    until(lambda: bench.states(batch) == ["WAITING_INPUT"] and not bench.service.ownership.rests())
    bench.report(bench.jobs(batch)[0], "staged", "started", "finished", "delivered")
    until(lambda: bench.service.ownership.rests())
    assert owned.planning["online"]._interval_s() == bench.service.settings.online_interval_s
    assert owned.planning["batch"]._interval_s() == REST_S


def test_new_work_wakes_its_family_and_no_other(bench, monkeypatch):
    bench.start()
    woken = []
    owned = bench.service.ownership._owned["default"]
    for name, loop in {**owned.planning, "outbox": owned._dispatching}.items():
        monkeypatch.setattr(loop, "wake", lambda name=name: woken.append(name))
    bench.service.work_arrived("gang")
    assert woken == ["gang"]
    bench.service.work_arrived()
    assert sorted(woken[1:]) == ["batch", "gang", "online", "outbox", "pipeline", "task"]
