"""Gangs on an embedded pool whose processes are simulated, with run times of seconds: queued, moved, killed, lost.

CPU time shows whether work was done once: a simulated process uses its share of a processor as long as it has work,
whatever its rate, so repeated work is counted twice.
"""

import json
import random
import subprocess
import sys
import time

import pytest

from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState, MigrationState, ProcessState
from fpga_pool.services.audit import audit
from fpga_pool.store import Store
from support.waiting import wait_until

PATIENCE_S = 240.0


def options(hosts, processors, migration_s=0.5):
    return {
        "standalone": {"hosts": hosts, "requesters": 0, "gang_processors": processors},
        # Lost hosts are not tested here: a busy machine may be silent for seconds.
        "scheduler": {"gang_migration_s": migration_s, "host_timeout_s": 60.0},
        "runner_simulated": {"migration_s": migration_s},
    }


def fpga_pool(pool, *words):
    command = [
        sys.executable,
        "-m",
        "fpga_pool.cli.client.main",
        "--endpoint",
        pool.endpoint,
        *map(str, words),
        "-f",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def until(condition):
    wait_until(condition, "what the test waits for", PATIENCE_S)


def until_state(pool, uuid, *states):
    client = pool.client()
    until(lambda: client.gang(uuid).gang.state in states)
    return client.gang(uuid)


def finished(pool, uuid):
    detail = until_state(pool, uuid, *ENDED_GANGS)
    assert detail.gang.state is GangState.COMPLETED, detail.gang.reason
    return detail


def states(detail):
    """Return the states that a gang went through."""
    return [entry.after for entry in detail.gang.history if entry.before not in ("", entry.after)]


def guests(pool):
    return sorted((pool.state_dir / "agents").glob("*/processes/*.json"))


def no_guest_is_left(pool):
    """Wait until no guest is left, as an agent reports the end of a process before it removes the guest."""
    until(lambda: guests(pool) == [])


def worked_once(gang):
    return gang.cpu_s == pytest.approx(gang.processes * gang.cpu_usage * gang.work_s)


def all_run(detail):
    return {process.state for process in detail.process_list} == {ProcessState.RUNNING}


def test_small_gangs_run_behind_a_wide_one_and_come_to_the_foreground_when_it_ends(make_pool):
    """1. A wide gang has all processors. 2. Small ones start behind it. 3. They swap when it ends. 4. All end once."""
    pool = make_pool(options(hosts=2, processors=2))
    client = pool.client()
    wide = fpga_pool(pool, "gang", "create", "--processes", 4, "--runtime", "5m", "--cpu-usage", 0.5)["uuid"]
    until_state(pool, wide, GangState.FOREGROUND)
    small = [client.create_gang(n, 60.0, 0.5, work_s=15.0).uuid for n in (1, 2)]
    until(lambda: all(all_run(client.gang(uuid)) for uuid in small))
    waiting = client.gang(small[0])
    assert waiting.gang.state is GangState.BACKGROUND
    assert waiting.pending_reason == "too few processors are idle"
    assert waiting.expected_at > waiting.gang.created_at
    fpga_pool(pool, "gang", "cancel", wide)
    for uuid in small:
        detail = finished(pool, uuid)
        assert states(detail) == ["BACKGROUND", "FOREGROUND", "COMPLETED"]
        assert (detail.gang.swaps, detail.gang.migrations, detail.gang.kills) == (1, 0, 0)
        assert min(detail.gang.foreground_s, detail.gang.background_s) > 0
        assert worked_once(detail.gang)
    no_guest_is_left(pool)
    listed = {row["uuid"]: row["state"] for row in fpga_pool(pool, "gang", "list")}
    assert fpga_pool(pool, "gang", "show", small[1])["swaps"] == 1
    assert listed == {wide: "CANCELLED", **dict.fromkeys(small, "COMPLETED")}


def moving(pool):
    """Let a gang move: it runs behind one that continues, and the foreground of another processor becomes idle."""
    client = pool.client()
    goes_on = client.create_gang(1, 600.0, 0.3).uuid
    until_state(pool, goes_on, GangState.FOREGROUND)
    ends = client.create_gang(1, 600.0, 0.9).uuid
    until_state(pool, ends, GangState.FOREGROUND)
    moves = client.create_gang(1, 60.0, 0.5, work_s=12.0).uuid
    until(lambda: all_run(client.gang(moves)))
    assert client.gang(moves).gang.state is GangState.BACKGROUND
    client.cancel_gang(ends)
    return goes_on, moves


@pytest.mark.long
def test_a_gang_moves_with_what_it_has_done_to_where_the_foreground_is_idle(make_pool):
    pool = make_pool(options(hosts=2, processors=1))
    goes_on, moves = moving(pool)
    detail = finished(pool, moves)
    assert states(detail) == ["BACKGROUND", "MOVING", "FOREGROUND", "COMPLETED"]
    assert [migration.state for migration in detail.migration_list] == [MigrationState.COMPLETED]
    assert worked_once(detail.gang)
    pool.client().cancel_gang(goes_on)
    assert until_state(pool, goes_on, GangState.CANCELLED).gang.state is GangState.CANCELLED
    no_guest_is_left(pool)


@pytest.mark.long
def test_a_pool_that_is_killed_in_the_middle_of_a_migration_goes_on_with_it(make_pool):
    pool = make_pool(options(hosts=2, processors=1, migration_s=8.0))
    _, moves = moving(pool)
    until_state(pool, moves, GangState.MOVING)
    pool.kill()
    pool.start()
    detail = finished(pool, moves)
    assert (detail.gang.attempt, detail.gang.failures) == (2, 0)
    assert [migration.state for migration in detail.migration_list] == [MigrationState.COMPLETED]
    assert worked_once(detail.gang)


@pytest.mark.long
def test_processes_outlive_agents_that_are_killed_and_end_once(make_pool):
    """1. A gang runs in each tier. 2. All services are killed and restarted. 3. Both end, without a second attempt."""
    pool = make_pool(options(hosts=2, processors=1))
    client = pool.client()
    front = client.create_gang(2, 60.0, 0.5, work_s=20.0).uuid
    until(lambda: all_run(client.gang(front)))
    behind = client.create_gang(2, 60.0, 0.5, work_s=20.0).uuid
    until(lambda: all_run(client.gang(behind)))
    pool.kill()
    assert len(guests(pool)) == 4
    pool.start()
    for uuid in (front, behind):
        gang = finished(pool, uuid).gang
        assert (gang.attempt, gang.failures) == (1, 0)
        assert worked_once(gang)


@pytest.mark.long
def test_a_queue_of_gangs_ends_as_it_should_however_often_the_pool_is_killed(make_pool):
    """Only the pool fails, so each gang has as many attempts as starts and moves, and its work is done once."""
    rng = random.Random(7)
    pool = make_pool(options(hosts=2, processors=2, migration_s=2.0))
    uuids = [
        pool.client().create_gang(rng.randint(1, 4), 60.0, rng.choice([0.3, 0.6, 0.9]), work_s=rng.uniform(4, 12)).uuid
        for _ in range(7)
    ]
    for _ in range(3):
        time.sleep(rng.uniform(0.5, 4.0))
        pool.kill()
        pool.start()
    for uuid in uuids:
        gang = finished(pool, uuid).gang
        assert (gang.failures, gang.attempt) == (0, 1 + gang.migrations)
        assert worked_once(gang)
    until(lambda: findings(pool) == [])


def findings(pool):
    """Return violations of the rules for an idle pool."""
    store = Store(f"sqlite:///{pool.state_dir / 'pool.sqlite'}")
    try:
        return audit(store, idle=True)
    finally:
        store.close()


@pytest.mark.long
def test_a_gang_whose_machine_dies_begins_again_as_a_whole(make_pool):
    pool = make_pool(options(hosts=2, processors=1))
    client = pool.client()
    uuid = client.create_gang(2, 60.0, 0.5, work_s=10.0).uuid
    until(lambda: all_run(client.gang(uuid)))
    guests(pool)[0].unlink()
    gang = finished(pool, uuid).gang
    assert (gang.attempt, gang.failures) == (2, 1)
    assert "QUEUED" in states(client.gang(uuid))
    no_guest_is_left(pool)
