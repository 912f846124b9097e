"""Gangs in the pool, case by case: moves of the policy, failures, and which reports and requests count."""

import pytest

from fpga_pool.model.exceptions import InvalidInput, InvalidTransition, NotFound, StaleEpoch
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.gangs import ProcessExited, ProcessFailed
from fpga_pool.model.objects.gangs import GangState, Migration, MigrationState, Process, Processor, ProcessState
from fpga_pool.model.rules.gang.admission import owned_gang
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat
from fpga_pool.model.values import changed


def state(pool, uuid):
    return str(pool.gang(uuid).state)


def live(pool, uuid):
    return {
        process.index: process
        for process in pool.store.all(Process)
        if process.gang_uuid == uuid and process.state is not ProcessState.ENDED
    }


def exit_all(pool, uuid):
    """Let the processes of a gang exit on all hosts."""
    for host in pool.hosts.values():
        for key in [key for key in host.running if key[0] == uuid]:
            host.drop(key, ProcessExited)


@pytest.fixture
def pool(new_gang_pool):
    """Two hosts with one processor each."""
    return new_gang_pool({"h0": 1, "h1": 1})


@pytest.fixture
def moving(pool):
    """Return a gang ordered to move (it runs behind one on h0; the foreground of h1 is idle), old and new host."""
    stays = pool.create(cpu_usage=0.3, runtime_s=1000.0)
    ends = pool.create(cpu_usage=0.9)
    pool.settle()
    moves = pool.create(cpu_usage=0.5)
    pool.settle()
    assert live(pool, moves)[0].processor == live(pool, stays)[0].processor
    exit_all(pool, ends)
    for name in pool.hosts:
        pool.tell(name)
    assert pool.plan() == [moves]
    return moves, live(pool, stays)[0].host, live(pool, moves)[0].host


def test_a_gang_starts_in_front_where_there_is_room_and_behind_where_there_is_not(pool):
    wide, small = pool.create(2), pool.create(1)
    pool.settle()
    assert (state(pool, wide), state(pool, small)) == ("FOREGROUND", "BACKGROUND")
    assert {process.state for process in live(pool, wide).values()} == {ProcessState.RUNNING}


def test_a_gang_behind_one_that_ends_is_swapped_to_the_foreground(pool):
    wide, small = pool.create(2), pool.create(2)
    pool.settle()
    exit_all(pool, wide)
    pool.settle()
    assert (state(pool, wide), state(pool, small)) == ("COMPLETED", "FOREGROUND")
    assert (pool.gang(small).swaps, pool.gang(small).attempt) == (1, 1)
    assert all(launch.tier is Tier.FOREGROUND for host in pool.hosts.values() for _, launch in host.held.values())


def test_a_gang_keeps_all_places_until_its_last_process_has_ended(pool):
    wide = pool.create(2)
    pool.settle()
    pool.hosts["h0"].exit(0)
    waits = pool.create(1, cpu_usage=1.0, runtime_s=10.0)
    pool.settle()
    assert (state(pool, wide), state(pool, waits)) == ("FOREGROUND", "BACKGROUND")
    exit_all(pool, wide)
    pool.settle()
    assert state(pool, wide) == "COMPLETED"
    assert pool.gang(wide).cpu_s == 2.0  # a second each


def test_a_move_launches_nothing_before_the_old_place_is_left_and_keeps_the_progress(pool, moving):
    moves, old, new = moving
    for _ in range(3):
        pool.deliver(new)
        pool.work(new)
    assert not any(key[0] == moves for key in pool.hosts[new].held)
    pool.deliver(old)
    pool.work(old)
    pool.tell(old)
    pool.deliver(new)
    ((_, launch),) = [held for key, held in pool.hosts[new].held.items() if key[0] == moves]
    assert launch.done_s == 1.0  # the progress on the old host
    assert state(pool, moves) == "MOVING"
    pool.settle()
    assert (state(pool, moves), pool.gang(moves).migrations) == ("FOREGROUND", 1)
    (migration,) = pool.store.all(Migration)
    assert migration.state is MigrationState.COMPLETED


def test_a_saved_memory_is_handed_to_the_place_that_the_process_goes_on_in(pool, moving):
    moves, old, new = moving
    pool.deliver(old)
    pool.work(old)
    pool.tell(old)
    assert pool.memories == {f"{moves}.1.0"}
    pool.deliver(new)
    ((_, launch),) = [held for key, held in pool.hosts[new].held.items() if key[0] == moves]
    assert (launch.attempt, launch.saved) == (2, f"{moves}.1.0")
    pool.settle()
    assert pool.memories == set()


@pytest.mark.parametrize("reported_first", [True, False])
def test_the_saved_memory_of_a_gang_that_is_cancelled_on_its_way_is_removed(pool, moving, reported_first):
    """The memory exists when the tenant cancels, whether or not the pool has received the report."""
    moves, old, _ = moving
    pool.deliver(old)
    pool.work(old)
    if reported_first:
        pool.tell(old)
    pool.cancel(moves)
    assert pool.memories == {f"{moves}.1.0"}
    pool.settle()
    assert (state(pool, moves), pool.memories) == ("CANCELLED", set())


def test_the_memory_that_a_lost_host_tells_of_when_it_is_back_is_removed(pool, moving):
    moves, old, _ = moving
    pool.deliver(old)
    pool.work(old)
    pool.hosts[old].away = True
    pool.tick(old)
    pool.hosts[old].away = False
    assert pool.memories == {f"{moves}.1.0"}
    pool.hear(old)
    pool.tell(old)
    pool.deliver(old)
    assert pool.memories == set()


def test_a_move_that_fails_half_way_queues_the_gang_again(pool, moving):
    moves, old, _ = moving
    pool.deliver(old)
    (key,) = [key for key in pool.hosts[old].running if key[0] == moves]
    pool.hosts[old].drop(key, ProcessFailed, message="no room to save it")
    pool.tell(old)
    (migration,) = pool.store.all(Migration)
    assert (migration.state, migration.reason) == (MigrationState.FAILED, "process 0: no room to save it")
    assert (state(pool, moves), live(pool, moves)) == ("QUEUED", {})
    pool.settle()
    assert (state(pool, moves), pool.gang(moves).failures) == ("FOREGROUND", 1)


def test_a_host_that_is_lost_while_a_gang_moves_to_it_leaves_the_gang_waiting(pool, moving):
    moves, old, new = moving
    pool.hosts[new].away = True
    pool.tick(new)
    assert state(pool, moves) == "QUEUED"
    pool.settle()  # to the background of the same gang as before
    assert state(pool, moves) == "BACKGROUND"
    assert [process.host for process in live(pool, moves).values()] == [old]


def test_a_gang_that_ends_while_it_is_told_to_move_is_finished(pool, moving):
    moves, old, _ = moving
    exit_all(pool, moves)
    pool.deliver(old)
    pool.tell(old)
    assert (state(pool, moves), live(pool, moves)) == ("COMPLETED", {})
    (migration,) = pool.store.all(Migration)
    assert migration.state is MigrationState.FAILED


def test_a_process_that_has_ended_is_not_launched_again_where_its_gang_moves(new_gang_pool):
    pool = new_gang_pool({"h0": 2, "h1": 2})
    stays = pool.create(2, cpu_usage=0.3, runtime_s=1000.0)
    ends = pool.create(2, cpu_usage=0.9)
    pool.settle()
    moves = pool.create(2, cpu_usage=0.5)
    pool.settle()
    (old,) = {process.host for process in live(pool, moves).values()}
    first = next(key for key in sorted(pool.hosts[old].running) if key[0] == moves)
    exit_all(pool, ends)
    for name in pool.hosts:
        pool.tell(name)
    assert pool.plan() == [moves]
    pool.hosts[old].drop(first, ProcessExited)
    pool.settle()
    assert state(pool, moves) == "FOREGROUND"
    assert [str(process.state) for process in live(pool, moves).values()] == ["EXITED", "RUNNING"]
    exit_all(pool, moves)
    pool.settle()
    assert (state(pool, moves), state(pool, stays)) == ("COMPLETED", "FOREGROUND")


def test_only_a_policy_that_kills_kills(new_gang_pool):
    pool = new_gang_pool({"h0": 1, "h1": 1}, policy="keasy")
    pool.create(cpu_usage=0.3, runtime_s=1000.0)
    ends = pool.create(cpu_usage=0.9)
    pool.settle()
    again = pool.create(cpu_usage=0.5)
    pool.settle()
    exit_all(pool, ends)
    pool.settle()
    gang = pool.gang(again)
    assert (gang.kills, gang.migrations, gang.attempt, gang.failures) == (1, 0, 2, 0)
    assert state(pool, again) == "FOREGROUND"


def test_a_gang_loses_all_its_processes_when_one_dies(pool):
    wide = pool.create(2)
    pool.settle()
    pool.hosts["h0"].die(0, told=True)
    pool.tell("h0")
    assert state(pool, wide) == "QUEUED"
    assert sorted(str(process.state) for process in live(pool, wide).values()) == ["STOPPED", "STOPPING"]
    pool.settle()
    assert (state(pool, wide), pool.gang(wide).attempt) == ("FOREGROUND", 2)


def test_a_gang_is_given_up_when_it_has_failed_too_often(pool):
    gang = pool.create(1)
    for _ in range(4):  # max_attempts
        pool.settle()
        for name in pool.hosts:
            pool.hosts[name].die(0, told=True)
    pool.settle()
    pool.tick()
    assert (state(pool, gang), pool.gang(gang).reason) == (
        "FAILED",
        "given up after 4 failures; last: process 0: its guest no longer exists",
    )


def test_a_displaced_gang_has_the_place_of_its_arrival(pool):
    first = pool.create(2)
    pool.settle()
    second = pool.create(2, cpu_usage=1.0)
    pool.hosts["h0"].die(0, told=True)
    pool.tell("h0")
    pool.settle()
    assert (state(pool, first), state(pool, second)) == ("FOREGROUND", "BACKGROUND")


def test_a_gang_that_runs_is_cancelled_when_nothing_of_it_is_left(pool):
    gang = pool.create(2)
    pool.settle()
    assert pool.cancel(gang).state is GangState.FOREGROUND
    assert pool.cancel(gang).cancel_requested  # again
    assert pool.plan() == []
    pool.settle()
    assert (state(pool, gang), live(pool, gang)) == ("CANCELLED", {})
    with pytest.raises(InvalidTransition, match="GangCancelRequested is not possible in state CANCELLED"):
        pool.cancel(gang)


def test_a_place_that_a_process_is_to_leave_is_given_to_nobody(pool):
    gang = pool.create(2)
    pool.settle()
    pool.cancel(gang)
    waits = pool.create(2)
    assert pool.plan() == []
    assert pool.outlook(waits).expected_at is None  # unknown until the place is left
    pool.settle()
    assert state(pool, waits) == "FOREGROUND"


def test_a_gang_behind_one_that_is_stopped_host_by_host_is_swapped_and_not_moved(pool):
    wide = pool.create(2, cpu_usage=0.5)
    pool.settle()
    small = pool.create(1, cpu_usage=0.5)
    pool.settle()
    behind = live(pool, small)[0].host
    pool.cancel(wide)
    for name in sorted(pool.hosts, key=lambda name: name == behind):  # the other host becomes free first
        pool.deliver(name)
        pool.work(name)
        pool.tell(name)
        pool.plan()
    gang = pool.gang(small)
    assert (gang.state, gang.swaps, gang.migrations) == (GangState.FOREGROUND, 1, 0)


def test_a_host_that_was_lost_and_is_back_has_its_processes_stopped(pool):
    gang = pool.create(1)
    pool.settle()
    (host,) = {process.host for process in live(pool, gang).values()}
    pool.hosts[host].away = True
    pool.tick(host)
    pool.settle()
    (other,) = {process.host for process in live(pool, gang).values()}
    assert (other != host, pool.gang(gang).attempt) == (True, 2)
    pool.hosts[host].exit(0)  # its work since the loss does not count
    pool.hosts[host].away = False
    pool.hear(host)
    pool.settle()
    assert state(pool, gang) == "FOREGROUND"
    assert pool.hosts[host].held == {}


def test_reports_of_another_host_an_older_attempt_or_an_unknown_gang_are_void(pool):
    gang = pool.create(1)
    pool.settle()
    (process,) = live(pool, gang).values()
    other = next(name for name in pool.hosts if name != process.host)
    for host, about in [(other, (gang, 0, 1)), (process.host, (gang, 0, 0)), (process.host, ("no gang", 0, 1))]:
        pool.hosts[host].tell(ProcessExited, about)
        pool.tell(host)
    assert state(pool, gang) == "FOREGROUND"


def test_a_heartbeat_tells_how_far_a_gang_is(pool):
    gang = pool.create(1)
    pool.settle()
    (process,) = live(pool, gang).values()
    heard = pool.hosts[process.host].heartbeat(pool.now_s)
    (seen,) = heard.processes
    told = changed(heard, processes=(changed(seen, done_s=5.0, rate=0.5, progress_at=pool.now_s),))
    with pool.tx() as tx:
        apply_heartbeat(tx, told, pool.now_s)
    assert pool.store.get(Process, process.uuid).done_by(pool.now_s + 10.0) == 10.0


def test_a_tier_that_is_not_as_it_should_be_is_told_again(pool):
    gang = pool.create(1)
    pool.settle()
    (process,) = live(pool, gang).values()
    host = pool.hosts[process.host]
    key = gang, 0, 1
    slot, launch = host.held[key]
    host.held[key] = slot, changed(launch, tier=Tier.BACKGROUND)
    pool.settle()
    assert host.held[key][1].tier is Tier.FOREGROUND


def test_a_processor_that_is_not_offered_any_more_costs_its_gang_its_place(pool):
    gang = pool.create(1)
    pool.settle()
    (process,) = live(pool, gang).values()
    host = pool.hosts[process.host]
    host.processors.clear()
    host.held.clear()
    host.running.clear()
    pool.settle()
    assert not pool.store.get(Processor, process.processor).offered
    assert state(pool, gang) == "FOREGROUND"
    assert live(pool, gang)[0].host != host.name


def test_a_processor_that_is_taken_from_the_gangs_stays_with_the_one_that_has_it_until_its_end(pool):
    gang = pool.create(1)
    pool.settle()
    (process,) = live(pool, gang).values()
    host = pool.hosts[process.host]
    waits, small, other = pool.create(2), pool.create(1, cpu_usage=1.0, runtime_s=10.0), pool.create(1)
    host.withdrawn.add(process.processor)
    pool.hear(host.name)
    pool.settle()
    assert [state(pool, uuid) for uuid in (gang, waits, small)] == ["FOREGROUND", "QUEUED", "FOREGROUND"]
    assert live(pool, small)[0].host != host.name
    assert state(pool, other) == "QUEUED"  # there is room behind `gang`, but its processor takes no new gangs
    pool.cancel(gang)
    pool.settle()
    assert (state(pool, gang), host.held) == ("CANCELLED", {})
    assert pool.outlook(waits).reason == "it needs 2 processors, the pool has 1"


def test_a_gang_wider_than_what_is_left_of_the_pool_says_so_and_holds_up_nobody(pool):
    wide = pool.create(2)
    pool.hosts["h1"].away = True
    pool.tick("h1")
    small = pool.create(1)
    pool.settle()
    assert (state(pool, wide), state(pool, small)) == ("QUEUED", "FOREGROUND")
    assert pool.outlook(wide).reason == "it needs 2 processors, the pool has 1"
    assert pool.outlook(wide).expected_at is None


def test_a_gang_that_waits_is_told_when_the_estimates_let_it_start(pool):
    """Each gang needs both processors: the first one for 100 s, then the second for 50 s, then the third."""
    started_at = pool.now_s
    pool.create(2, runtime_s=100.0, cpu_usage=1.0)
    pool.settle()
    second, third = pool.create(2, runtime_s=50.0), pool.create(2, runtime_s=10.0)
    assert pool.outlook(second).expected_at == pytest.approx(started_at + 100.0, abs=0.01)
    assert pool.outlook(third).expected_at == pytest.approx(started_at + 150.0, abs=0.01)
    assert pool.outlook(third).reason == "too few processors are idle"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"processes": 3}, "processes: expected 1 to 2, found 3"),
        ({"processes": 0}, "processes: expected 1 to 2, found 0"),
        ({"runtime_s": 0.0}, "runtime_s: expected a number above 0"),
        ({"runtime_s": float("nan")}, "runtime_s: expected a number above 0"),
        ({"work_s": -1.0}, "work_s: expected a number above 0"),
        ({"cpu_usage": 1.1}, "cpu_usage: expected a share of a processor"),
    ],
)
def test_a_gang_that_cannot_be_right_is_refused(pool, fields, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        pool.create(**fields)


def test_a_gang_of_another_project_looks_as_if_it_did_not_exist(pool):
    gang = pool.create(1)
    with pool.tx() as tx, pytest.raises(NotFound, match=f"no gang {gang}"):
        owned_gang(tx, gang, "another")


def test_a_heartbeat_cannot_speak_for_the_processors_of_another_host(pool):
    heard = pool.hosts["h0"].heartbeat(pool.now_s)
    foreign = changed(heard.processors[0], processor="h1/pcpu/0")
    with pool.tx() as tx, pytest.raises(InvalidInput, match="h1/pcpu/0 is not a processor of host h0"):
        apply_heartbeat(tx, changed(heard, processors=(foreign,)), pool.now_s)
    later = changed(heard.processors[0], epoch=9)
    with pool.tx() as tx, pytest.raises(StaleEpoch, match="has executed commands of epoch 9"):
        apply_heartbeat(tx, changed(heard, processors=(later,)), pool.now_s)


def test_a_host_that_is_new_brings_its_processors(pool):
    assert sorted(processor.name for processor in pool.store.all(Processor)) == ["h0/pcpu/0", "h1/pcpu/0"]
