"""What changes in the pool, told to those who follow it, and what they make of it."""

import pytest

from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.rpc.feed import QUIET_S, PoolFeed
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.services.scheduler.snapshots import Snapshots
from fpga_pool.services.scheduler.telling import BEAT_S, FOLLOWED_S, Teller


class Time:
    now_s = 100.0

    def __call__(self):
        return self.now_s


class Asked(SchedulerAPI):
    """Counts how often the pool was asked for."""

    snapshots = 0

    def snapshot(self, seen=None):
        self.snapshots += 1
        return super().snapshot(seen)


class Feed(PoolFeed):
    """Counts what it was told."""

    told = 0

    def take(self, after, changes):
        super().take(after, changes)
        self.told += 1


@pytest.fixture
def asked(running):
    running.service.ownership.pause()
    return Asked(running.transport)


@pytest.fixture
def feed(running, asked, servers):
    """A feed whose time stands still: it is never quiet for too long."""
    made = Feed(running.transport, asked, Time())
    made.start()
    yield made
    servers.submit(made.stop)


def states(pool):
    return {pool.slot_name(row): pool.words[number] for row, number in enumerate(pool.slots["state"])}


def drain(running, name):
    uuid = next(slot.uuid for slot in running.api.slots() if slot.name == name)
    running.api.drain_slot(uuid, "repair")


def test_changes_reach_a_feed_that_asks_once(running, asked, feed, until):
    agent = running.host()
    assert set(states(feed.now()).values()) == {"EMPTY"}
    until(lambda: feed.told)  # what changes before the scheduler begins to tell is asked for
    drain(running, f"{agent.name}/c/r1")
    until(lambda: states(feed.now())[f"{agent.name}/c/r1"] == "DRAINED")
    assert asked.snapshots == 1


def test_a_host_that_is_new_reaches_a_feed(running, feed, until):
    feed.now()
    agent = running.host()
    until(lambda: states(feed.now()).keys() == {f"{agent.name}/c/{region}" for region in ("r0", "r1", "r2")})


def pool(generation, hosts, size=None):
    """Hosts of one shard, by the generation in which each changed."""
    rows = [(name, "s", "", True, changed_in) for name, changed_in in hosts.items()]
    return PoolColumns.of({"s": generation}, rows, [], size)


class Pool:
    """Answers from a list, as a scheduler would."""

    def __init__(self, *answers):
        self.answers, self.asked_after = list(answers), []

    def snapshot(self, seen=None):
        self.asked_after.append(seen)
        return self.answers.pop(0)

    def follow(self):
        pass


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def fed(running, time):
    def build(*answers):
        scheduler = Pool(pool(5, {"a": 1, "b": 5}, (2, 0)), *answers)
        made = PoolFeed(running.transport, scheduler, time)
        made.now()
        return made, scheduler

    return build


def generations(found):
    names = [found.words[number] for number in found.hosts["name"]]
    return dict(zip(names, found.hosts["changed_in"].tolist(), strict=True))


def test_what_was_told_before_is_told_again_without_harm(fed):
    feed, scheduler = fed()
    feed.take({"s": 3}, pool(6, {"b": 5, "c": 6}, (3, 0)))
    assert generations(feed.now()) == {"a": 1, "b": 5, "c": 6}
    feed.take({"s": 4}, pool(5, {"b": 5}, (2, 0)))  # older than what is known
    assert generations(feed.now()) == {"a": 1, "b": 5, "c": 6}
    assert scheduler.asked_after == [None]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (6, pool(7, {"c": 7}, (3, 0))),  # what happened in 6 was missed
        (5, pool(7, {"c": 7}, (2, 0))),  # with c there are three here: one of the others was removed
    ],
)
def test_where_something_was_missed_the_pool_is_asked(fed, after, told):
    feed, scheduler = fed(pool(7, {"b": 6, "c": 7}, (3, 0)))
    feed.take({"s": after}, told)
    assert generations(feed.now()) == {"a": 1, "b": 6, "c": 7}
    assert scheduler.asked_after == [None, {"s": 5}]


def test_where_nothing_is_told_any_more_the_pool_is_asked(fed, time):
    feed, scheduler = fed(pool(5, {}, (2, 0)), pool(6, {"b": 6}, (2, 0)))
    time.now_s += QUIET_S - 0.1
    feed.take({"s": 5}, pool(5, {}, (2, 0)))  # a sign of life
    time.now_s += QUIET_S - 0.1
    feed.now()
    assert scheduler.asked_after == [None]
    time.now_s += 0.1
    feed.now()
    assert scheduler.asked_after == [None, {"s": 5}]
    time.now_s += QUIET_S
    assert generations(feed.now()) == {"a": 1, "b": 6}


@pytest.fixture
def told():
    return []


@pytest.fixture
def teller(running, time, told):
    running.service.ownership.pause()
    return Teller(
        Snapshots(running.store, running.clock), lambda: ["default"], lambda after, new: told.append((after, new)), time
    )


def test_nothing_is_told_while_nobody_follows(running, teller, told, time):
    for _ in range(3):
        running.host()
        assert not teller.step()
    teller.followed()
    time.now_s += FOLLOWED_S
    teller.step()
    assert told == []


def test_what_is_told_follows_what_was_told_before(running, teller, told, time):
    teller.followed()
    teller.step()
    first, second = running.host(), running.host()
    teller.step()
    drain(running, f"{first.name}/c/r0")
    teller.step()
    teller.step()  # nothing new, and no time has gone by
    time.now_s += BEAT_S
    teller.step()
    assert [new.rows for _, new in told] == [(2, 6), (0, 1), (0, 0)]
    assert [after for after, _ in told[1:]] == [new.seen for _, new in told[:2]]
    assert all(new.size == (2, 6) for _, new in told)
    assert second.name in told[0][1].words


def test_only_the_owner_of_the_first_shard_tells(running, time, told):
    running.service.ownership.pause()
    other = Teller(Snapshots(running.store, running.clock), lambda: ["zone-2"], told.append, time)
    other.followed()
    for _ in range(2):
        time.now_s += BEAT_S
        other.step()
    assert told == []
