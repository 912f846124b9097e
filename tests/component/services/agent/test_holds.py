"""Slots that are held for instances: one agent with the real simulated driver."""

import hashlib
import threading

import pytest

from fpga_pool.model.exceptions import Conflict, FpgaPoolError, ServiceUnavailable, SlotFault, StorageFull
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot, JobEvicted
from fpga_pool.services.agent.journal import Journal

SLOT, OTHER = "h0/sim0/slot0", "h0/sim0/slot1"
PATIENCE_S = 60.0


def hold(bench, instance="vm", *, function="sha256", slot=SLOT, epoch=1):
    action = HoldSlot(instance=instance, project_id="p", function=function, lease_epoch=epoch)
    return bench.execute(bench.commands.command(action, slot))


def free(bench, instance="vm", *, slot=SLOT, epoch=1):
    return bench.execute(bench.commands.command(FreeSlot(instance=instance, lease_epoch=epoch), slot))


def observed(bench, slot=SLOT):
    found = next(item for item in bench.agent.heartbeat().slots if item.slot == slot)
    return found.instance, found.state.value, found.function


@pytest.fixture
def compute(tmp_path):
    """Return a function that computes like a guest and returns the result."""

    def run(bench, instance="vm", function="", data=b"abc", limit_s=60.0):
        (tmp_path / "in").write_bytes(data)
        bench.worker.guest.run(instance, function, len(data), tmp_path / "in", tmp_path / "out", limit_s)
        return (tmp_path / "out").read_bytes()

    return run


def test_a_slot_that_is_held_is_loaded_told_and_used_by_its_instance(bench, until, compute):
    assert hold(bench) == ["accepted"]
    bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    assert observed(bench) == ("vm", "READY", "sha256")
    until(lambda: bench.worker.guest._hold is not None)
    assert compute(bench).split()[0].decode() == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(Conflict, match="this accelerator is sha256, not aes"):
        compute(bench, function="aes")
    with pytest.raises(Conflict, match="no longer assigned to this machine"):
        compute(bench, instance="another")


def test_a_slot_let_go_is_scrubbed_and_its_instance_computes_there_no_more(bench, until, compute):
    hold(bench)
    until(lambda: bench.worker.guest._hold is not None)
    compute(bench, data=b"secret")
    assert bench.driver.memory(bench.address).startswith(b"secret")
    assert free(bench) == ["accepted"]
    until(lambda: not any(bench.driver.memory(bench.address)))
    assert observed(bench)[0] == ""
    with pytest.raises(Conflict, match="not ready"):
        compute(bench)


def test_jobs_wait_while_a_slot_is_held_and_go_on_afterwards(bench, until):
    hold(bench)
    bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    bench.assign("j")
    bench.assign("k", slot=OTHER)
    until(lambda: bench.told("k")[-1:] == ["JobFinished"])
    assert bench.told("j") == ["InputStaged"]
    free(bench)
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])


def test_a_job_that_is_evicted_leaves_before_the_slot_is_loaded_for_the_instance(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount", project_id="other")
    until(lambda: bench.state() == "BUSY")
    bench.execute(
        bench.commands.evict("j"),
        bench.commands.command(HoldSlot(instance="vm", project_id="p", function="sha256", lease_epoch=2)),
    )
    bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    assert not any(bench.driver.memory(bench.address))
    until(lambda: [item for item in bench.scheduler.reports if isinstance(item, JobEvicted)])


def test_what_the_instance_computes_is_stopped_when_its_slot_is_let_go(bench, until, compute):
    hold(bench, function="wordcount")
    until(lambda: bench.worker.guest._hold is not None)
    failures = []

    def guest():
        try:
            compute(bench)
        except FpgaPoolError as error:
            failures.append(str(error))

    thread = threading.Thread(target=guest)
    thread.start()
    until(lambda: bench.driver.state(bench.address).state.value == "BUSY")
    free(bench)
    thread.join(PATIENCE_S)
    assert failures == ["sim0/slot0: the job was stopped"]
    until(lambda: not any(bench.driver.memory(bench.address)))


def test_a_computation_that_takes_too_long_is_stopped(bench, until, compute):
    hold(bench, function="wordcount")
    until(lambda: bench.worker.guest._hold is not None)
    with pytest.raises(SlotFault, match="stopped"):
        compute(bench, limit_s=0.1)


def test_a_computation_whose_limit_is_over_before_it_begins_is_stopped(bench, until, compute, monkeypatch):
    hold(bench, function="wordcount")
    until(lambda: bench.worker.guest._hold is not None)
    stopped, run, stop = threading.Event(), bench.driver.run, bench.driver.stop
    monkeypatch.setattr(bench.driver, "stop", lambda *arguments: (stop(*arguments), stopped.set()))
    monkeypatch.setattr(bench.driver, "run", lambda *arguments: stopped.wait(PATIENCE_S) and run(*arguments))
    with pytest.raises(SlotFault, match="stopped"):
        compute(bench, limit_s=0.0)


def test_a_load_that_fails_is_told_to_whoever_waits_and_tried_again(bench):
    bench.driver.fail_next_load(bench.address)
    with bench.jobs.changed:  # so that the slot does not change before the wait begins
        hold(bench)
        with pytest.raises(SlotFault, match="loading sha256 failed"):
            bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    with bench.jobs.changed:
        ready = bench.jobs.holds.changed.wait_for(lambda: bench.jobs.holds.of(SLOT).ready, PATIENCE_S)
    assert ready


def test_a_function_without_bitstream_is_told_to_whoever_waits(bench):
    bench.library._path("aes", "fast", "small").unlink()
    hold(bench, function="aes")
    with pytest.raises(SlotFault, match="aes"):
        bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    hold(bench, "other")
    bench.jobs.holds.wait_ready("other", [SLOT], PATIENCE_S)


def test_a_wait_is_bounded_and_says_what_it_waited_for(bench):
    with pytest.raises(ServiceUnavailable, match="slot h0/sim0/slot0 was not ready within"):
        bench.jobs.holds.wait_ready("vm", [SLOT], 0.01)


def test_a_slot_goes_from_one_instance_to_another_scrubbed(bench, until, compute):
    hold(bench)
    until(lambda: bench.worker.guest._hold is not None)
    compute(bench, data=b"secret")
    hold(bench, "other", epoch=2)
    bench.jobs.holds.wait_ready("other", [SLOT], PATIENCE_S)
    assert not any(bench.driver.memory(bench.address))
    # A late command for the previous instance has no effect.
    free(bench, "vm", epoch=1)
    assert observed(bench)[0] == "other"


def test_a_hold_said_again_leaves_a_ready_slot_as_it_is(bench, until, compute):
    hold(bench)
    until(lambda: bench.worker.guest._hold is not None)
    compute(bench, data=b"kept")
    hold(bench)
    assert bench.jobs.holds.of(SLOT).ready
    until(lambda: compute(bench, data=b"kept"))


def test_a_card_that_lost_its_slots_is_loaded_again_for_its_instance(bench, until):
    hold(bench)
    bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    bench.driver.remove_card("sim0")
    until(lambda: bench.state() == "FAULTED")
    bench.driver.restore_card("sim0")
    until(lambda: observed(bench) == ("vm", "READY", "sha256"))


def test_holds_survive_the_agent(new_bench, until, compute):
    bench = new_bench()
    hold(bench)
    bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    bench.stop()
    bench.start()
    until(lambda: observed(bench) == ("vm", "READY", "sha256"))
    until(lambda: bench.worker.guest._hold is not None)
    assert compute(bench).split()[0].decode() == hashlib.sha256(b"abc").hexdigest()


def test_a_hold_is_in_the_journal_before_its_outcome_is_told_and_a_repeat_is_answered(bench, tmp_path):
    command = bench.commands.command(HoldSlot(instance="vm", project_id="p", function="sha256", lease_epoch=1))
    assert bench.execute(command) == ["accepted"]
    journal = Journal(bench.settings.state_dir / "journal.sqlite")
    try:
        assert journal.holds()[SLOT][0] == command.action
    finally:
        journal.close()
    assert bench.execute(command) == ["repeated"]


def test_a_late_hold_is_refused(bench):
    late = bench.commands.command(HoldSlot(instance="late", project_id="p", function="sha256", lease_epoch=1))
    hold(bench)
    assert bench.execute(late) == ["refused"]
    assert bench.jobs.holds.slots_of("vm") == [SLOT]


def test_holds_of_a_change_that_the_journal_did_not_take_are_forgotten(bench, monkeypatch):
    def full(*_, **__):
        assert bench.jobs.holds.slots_of("vm") == [SLOT]
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(bench.agent._journal, "record", full)
        with pytest.raises(StorageFull):
            hold(bench)
    assert bench.jobs.holds.slots_of("vm") == []
