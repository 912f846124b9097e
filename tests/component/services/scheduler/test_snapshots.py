"""The pool as columns, sent by a scheduler to the processes that follow it."""

import pytest

from fpga_pool.nova_plugin.follower import PoolFollower
from fpga_pool.services.scheduler.changes import COUNT_INTERVAL_S, Snapshots
from fpga_pool.services.scheduler.endpoint import SchedulerEndpoint
from fpga_pool.store.tables import HOSTS, SLOTS


@pytest.fixture
def follower(running):
    running.service.ownership.pause()
    return PoolFollower(running.api)


def told(columns):
    return {columns.slot_name(row): bool(columns.in_service[row]) for row in range(columns.rows[1])}


def slot(agent, region):
    return f"{agent.name}/c/{region}"


def test_a_follower_knows_of_every_change(running, follower):
    assert told(follower.now()) == {}
    agent = running.host()
    assert told(follower.now()) == {slot(agent, region): True for region in ("r0", "r1", "r2")}
    other = running.host()
    drained = next(one for one in running.api.slots() if one.name == slot(agent, "r1"))
    running.api.drain_slot(drained.uuid, "repair")
    newest = told(follower.now())
    assert newest == {slot(one, region): True for one in (agent, other) for region in ("r0", "r1", "r2")} | {
        slot(agent, "r1"): False
    }


def test_what_changed_is_told_by_any_scheduler(running, follower):
    agent = running.host()
    known = follower.now()
    another = SchedulerEndpoint(running.new_service("another"))
    running.api.drain_slot(running.api.slots()[0].uuid, "repair")
    delta = Snapshots(running.store, running.clock).changed_after(known.seen)
    assert [delta.slot_name(0)] == [slot(agent, "r0")]
    assert delta.to_plain() == another.snapshot({}, seen=dict(known.seen))


def test_a_removed_host_is_noticed(running, follower, until):
    kept, removed = running.host(), running.host()
    assert len(told(follower.now())) == 6
    with running.store.engine.begin() as connection:
        connection.execute(SLOTS.delete().where(SLOTS.c.host == removed.name))
        connection.execute(HOSTS.delete().where(HOSTS.c.name == removed.name))
    until(lambda: list(told(follower.now())) == [slot(kept, region) for region in ("r0", "r1", "r2")])


def test_rows_are_counted_now_and_then_only(running):
    now = [running.clock()]
    snapshots = Snapshots(running.store, lambda: now[0])
    running.host()
    assert snapshots.changed_after(None).rows == (1, 3)
    with running.store.engine.begin() as connection:
        connection.execute(SLOTS.delete())
    assert snapshots.changed_after(None).rows == (1, 3)
    now[0] += COUNT_INTERVAL_S
    assert snapshots.changed_after(None).rows == (1, 0)
