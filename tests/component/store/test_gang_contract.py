"""The contract of all implementations of model.transaction.Transaction for gangs."""

from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.gangs import LaunchProcess
from fpga_pool.model.objects.gangs import GangState, MigrationState, ProcessState
from fpga_pool.model.objects.history import HistoryEntry


def test_gangs_and_what_is_theirs_read_back_equal(begin, make):
    history = (HistoryEntry(1.5, "StartedBehind", "QUEUED", "BACKGROUND"),)
    host, processor = make.host(), make.processor(number=3, sequence=7, offered=False)
    gang = make.gang(
        name="Märchen", state=GangState.MOVING, cancel_requested=True, ends_at=1_790_000_000.123456, history=history
    )
    process = make.process(
        gang, processor, tier=Tier.BACKGROUND, state=ProcessState.SAVING, done_s=1 / 3, rate=0.48, history=history
    )
    migration = make.migration(gang, state=MigrationState.RESUMING, reason="r", history=history)
    with begin() as tx:
        tx.add(migration, process, gang, processor, host)  # in any order
    with begin() as tx:
        assert tx.processor(processor.name) == processor
        assert tx.gang(gang.uuid) == gang
        assert tx.process(process.uuid) == process
        assert tx.migration(migration.uuid) == migration


@pytest.mark.parametrize("noun", ["processor", "gang", "process", "migration"])
def test_reading_what_does_not_exist_names_it(begin, noun):
    with begin() as tx, pytest.raises(NotFound, match=f"no {noun} nowhere"):
        getattr(tx, noun)("nowhere")


def test_open_gangs_are_listed_in_order_of_arrival_those_of_the_shard_alone(begin, make, saved):
    late, early = saved(make.gang(created_at=2.0), make.gang(created_at=1.0, state=GangState.FOREGROUND))
    saved(make.gang(state=GangState.COMPLETED), make.gang(state=GangState.CANCELLED), make.gang(shard="another"))
    with begin() as tx:
        assert list(tx.open_gangs()) == [early, late]


def test_processors_are_listed_by_name_and_host(begin, make, saved):
    saved(make.host("a"), make.host("b"))
    there = saved(make.processor("b"), make.processor("a", 1), make.processor("a", 0))
    with begin() as tx:
        assert list(tx.processors()) == [there[2], there[1], there[0]]
        assert list(tx.processors("a")) == [there[2], there[1]]


def test_processes_that_have_a_place_are_listed_by_gang_and_by_host(begin, make, saved):
    saved(make.host("a"), make.host("b"))
    near, far = saved(make.processor("a"), make.processor("b"))
    gang, other = saved(make.gang(), make.gang())
    second, first = saved(make.process(gang, far, 1), make.process(gang, near, 0))
    theirs = saved(make.process(other, near, tier=Tier.BACKGROUND, state=ProcessState.STOPPING))
    saved(make.process(gang, near, attempt=0, state=ProcessState.ENDED))
    with begin() as tx:
        assert list(tx.processes(gang=gang.uuid)) == [first, second]
        assert {process.uuid for process in tx.processes(host="a")} == {first.uuid, theirs.uuid}
        assert len(tx.processes()) == 3


def test_two_processes_cannot_have_one_place(begin, make, saved):
    saved(make.host())
    processor = saved(make.processor())
    gang, other = saved(make.gang(), make.gang())
    saved(make.process(gang, processor))
    with begin() as tx:
        with pytest.raises(Conflict, match="host-0/pcpu/0/foreground: already used by another process"):
            tx.add(make.process(other, processor))
        tx.add(make.process(other, processor, tier=Tier.BACKGROUND))
    with begin() as tx:
        assert len(tx.processes()) == 2


def test_a_place_that_was_left_can_be_had_in_the_same_transaction(begin, make, saved):
    saved(make.host())
    processor = saved(make.processor())
    gang, other = saved(make.gang(), make.gang())
    first = saved(make.process(gang, processor))
    behind = saved(make.process(other, processor, tier=Tier.BACKGROUND))
    with begin() as tx:
        tx.save(replace(tx.process(first.uuid), state=ProcessState.ENDED))
        tx.save(replace(tx.process(behind.uuid), tier=Tier.FOREGROUND))
        third = make.gang()
        tx.add(third)
        tx.add(make.process(third, processor, tier=Tier.BACKGROUND))
    with begin() as tx:
        places = {process.gang_uuid: process.held_place for process in tx.processes()}
        assert places == {
            other.uuid: "host-0/pcpu/0/foreground",
            third.uuid: "host-0/pcpu/0/background",
        }


def test_a_command_for_a_process_keeps_all_that_it_says(begin, outbox, make):
    action = LaunchProcess(
        gang="g", index=1, attempt=2, tier=Tier.BACKGROUND, processes=3, cpu_usage=0.6, work_s=1 / 3, done_s=0.1
    )
    with begin() as tx:
        tx.send(make.command(slot="host-0/pcpu/0", action=action))
    assert [command.action for command in outbox()] == [action]


def test_the_last_run_times_of_a_user_are_listed_oldest_first_in_whatever_shard(begin, make, saved):
    for ended_at, ran_s, fields in [(4.0, 40.0, {}), (2.0, 20.0, {"shard": "another"}), (3.0, 30.0, {})]:
        saved(make.gang(state=GangState.COMPLETED, ended_at=ended_at, ran_s=ran_s, **fields))
    saved(make.gang(state=GangState.COMPLETED, ended_at=5.0, ran_s=50.0, user_id="user-b"))
    saved(make.gang(state=GangState.CANCELLED, ended_at=6.0), make.gang())
    with begin() as tx:
        assert list(tx.gang_run_times("user-a", 2)) == [30.0, 40.0]
        assert list(tx.gang_run_times("user-a", 5)) == [20.0, 30.0, 40.0]
        assert list(tx.gang_run_times("user-c", 5)) == []
