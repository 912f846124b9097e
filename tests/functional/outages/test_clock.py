"""The clock of one machine is set back by an hour: while the process runs, and before it restarts."""

import re
from collections.abc import Iterator

import pytest

from support.clocks import HOUR_S, Clock

DIFFERS = "this machine's clock differs from the pool's by"


@pytest.fixture(scope="module")
def clocks(tmp_path_factory) -> dict[str, Clock]:
    directory = tmp_path_factory.mktemp("clocks")
    return {name: Clock(directory / name) for name in ("scheduler-1", "node-2")}


@pytest.fixture(scope="module")
def scene(run_pool, broker, mariadb, clocks):
    launchers = {name: clock.launcher for name, clock in clocks.items()}
    options = {"scheduler": {"interval_s": 0.2, "dispatch_lead_s": 0.05, "host_timeout_s": 30.0}}  # no loss by restarts
    with run_pool(broker, mariadb.new_database(), agents=2, launchers=launchers, options=options) as scene:
        yield scene


@pytest.fixture
def set_back(clocks) -> Iterator:
    """Set the clock of a process back by an hour, until the test ends."""

    def act(name: str) -> None:
        clocks[name].set(-HOUR_S)

    yield act
    for clock in clocks.values():
        clock.set(0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["scheduler-1", "node-2"])
def test_a_clock_that_is_set_back_is_not_noticed(scene, set_back, name):
    # Before: 4 of 8 jobs compute, the others wait in their slots.
    work, began_at = scene.begin_twice_full(seconds=1.5), scene.now()

    set_back(name)

    # After: pool time continued, and so did the jobs.
    work.finish()
    assert work.attempts() == {1}
    assert 0 < scene.now() - began_at < HOUR_S
    assert not scene.hosts_were_lost()
    assert DIFFERS not in scene.logs()[name]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["scheduler-1", "node-2"])
def test_a_process_that_starts_an_hour_back_follows_the_pools_time_and_says_so(scene, set_back, name):
    # Before: 4 of 8 jobs compute, the others wait in their slots.
    work, began_at = scene.begin_twice_full(seconds=1.5), scene.now()

    set_back(name)
    scene.pool.restart(name)

    # After: from its first message on, the process uses pool time, which stood still while the only scheduler was away.
    work.finish(in_order=name != "scheduler-1")
    assert work.attempts() == {1}
    assert 0 < scene.now() - began_at < HOUR_S
    assert not scene.hosts_were_lost()
    logs = scene.logs()
    assert re.search(f"{DIFFERS} 3[56]..\\.", logs[name])
    # No other process has adopted the wrong time.
    assert not any(re.search(f"{DIFFERS} -3[56]..\\.", log) for log in logs.values())
