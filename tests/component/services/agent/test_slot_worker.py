"""One slot with the real simulated driver."""

import hashlib
import threading
import time

import pytest

from fpga_pool.drivers.slots.base import SlotStatus
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.agent import machine
from fpga_pool.model.agent.events import CardSeen
from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.exceptions import InvalidInput, InvalidTransition
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.services.agent import slot_worker

SLOT, OTHER = "h0/sim0/slot0", "h0/sim0/slot1"
DONE = ["InputStaged", "JobStarted", "JobFinished"]


def held(bench, job):
    """Return whether the result of a job is held."""
    found = bench.jobs.get(job)
    return found is not None and found.phase is Phase.HELD


@pytest.fixture
def fails_once(monkeypatch):
    """Return a function that makes the next call of a method by the slot's thread fail with an unknown error.

    That function returns a list, which contains the error after the failure.
    """
    monkeypatch.setattr(slot_worker, "AGAIN_S", 0.02)

    def patch(owner, name):
        method, errors = getattr(owner, name), []

        def failing(*arguments):
            if not errors and threading.current_thread().name == f"slot-{SLOT}":
                errors.append(RuntimeError(f"{name}: smoke"))
                raise errors[0]
            return method(*arguments)

        monkeypatch.setattr(owner, name, failing)
        return errors

    return patch


def test_a_job_is_loaded_computed_and_its_result_held(bench, until):
    bench.assign("j", data=b"abc")
    until(lambda: bench.told("j") == DONE)
    finished = next(item for item in bench.scheduler.reports if type(item).__name__ == "JobFinished")
    output = bench.jobs.end_of("j").result(0).data
    assert hashlib.sha256(b"abc").hexdigest().encode() in output
    assert (finished.result_bytes, finished.result_sha256) == (len(output), hashlib.sha256(output).hexdigest())
    assert finished.compute_s >= 0.005
    until(lambda: bench.slot_states() == ["LOADING", "READY", "BUSY", "READY"])
    until(lambda: bench.files() == [])


def test_no_byte_of_a_small_input_stays_in_the_place_of_its_slot(bench, until, tmp_path):
    def compute(job, data):
        assert bench.execute(bench.commands.assign(job, input_bytes=len(data))) == ["accepted"]
        bench.jobs.staged_small([(job, data)])
        until(lambda: held(bench, job))
        assert hashlib.sha256(data).hexdigest().encode() in bench.jobs.end_of(job).result(0).data

    compute("j", b"a tenant's")
    (place,) = tmp_path.rglob("*.in")
    until(lambda: place.read_bytes() == bytes(10))
    compute("k", b"less")


def test_a_function_is_loaded_ahead_while_the_input_is_on_its_way(bench, until):
    bench.execute(bench.commands.assign("j"))
    until(lambda: bench.slot_states() == ["LOADING", "READY"])


def test_jobs_run_one_after_the_other_in_their_order_and_a_loaded_function_stays(bench, until):
    bench.assign("first", order=0)
    bench.assign("third", order=2)
    bench.assign("second", order=1)
    until(lambda: all(held(bench, job) for job in ("first", "second", "third")))
    until(lambda: bench.slot_states()[-1] == "READY" and bench.slot_states().count("BUSY") == 3)
    # A slot that continues with the next job may skip the report that it is READY.
    assert [state for state in bench.slot_states() if state != "READY"] == ["LOADING"] + ["BUSY"] * 3


def test_a_job_that_hangs_is_stopped_its_slot_faulted_and_offered_again(new_bench, until):
    bench = new_bench(hang_grace_s=0.3)
    bench.driver.hang_next_run(bench.address)
    bench.assign("j")
    until(lambda: bench.failure("j"))
    assert (bench.failure("j").code, bench.failure("j").retryable) == ("fpga_pool.slot_fault", True)
    until(lambda: bench.slot_states()[3:] == ["FAULTED", "EMPTY"])
    bench.assign("j", attempt=2, expected_s=60.0)
    until(lambda: held(bench, "j"))


def test_a_job_that_takes_too_long_is_stopped_and_its_slot_is_sound(new_bench, until):
    bench = new_bench(hang_grace_s=0.3)
    bench.assign("j", function="wordcount")
    until(lambda: bench.failure("j"))
    assert (bench.failure("j").code, bench.failure("j").retryable) == ("fpga_pool.stopped", True)
    until(lambda: bench.slot_states()[3:] == ["READY"])


def test_a_load_that_fails_faults_the_slot_which_is_offered_again_and_the_job_done(bench, until):
    bench.driver.fail_next_load(bench.address)
    bench.assign("j")
    until(lambda: held(bench, "j"))
    assert bench.slot_states()[:4] == ["LOADING", "FAULTED", "EMPTY", "LOADING"]


def test_a_card_that_disappears_under_a_job_fails_it_and_comes_back(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    bench.driver.remove_card("sim0")
    until(lambda: bench.failure("j"))
    assert bench.failure("j").retryable
    until(lambda: bench.slot_states()[-1] == "FAULTED")
    bench.driver.restore_card("sim0")
    until(lambda: bench.slot_states()[-1] == "EMPTY")
    bench.assign("k")
    until(lambda: held(bench, "k"))


def test_a_card_that_disappears_while_idle_is_noticed(bench, until):
    bench.driver.remove_card("sim0")
    until(lambda: bench.slot_states() == ["FAULTED"])
    assert bench.observed().reason == "the card does not answer"
    bench.driver.restore_card("sim0")
    until(lambda: bench.slot_states() == ["FAULTED", "EMPTY"])


def test_a_card_that_was_away_between_two_looks_is_loaded_again(bench, until):
    bench.assign("j")
    until(lambda: held(bench, "j") and bench.state() == "READY")
    with bench.jobs.changed:  # the slot's thread cannot run meanwhile
        bench.driver.remove_card("sim0")
        bench.driver.restore_card("sim0")
    until(lambda: bench.slot_states()[-1] == "EMPTY")
    bench.assign("k")
    until(lambda: held(bench, "k"))


def test_an_altered_bitstream_fails_its_jobs_with_a_clear_code_and_the_slot_stays_usable(bench, until):
    path = next((bench.library._root / "fast" / "small").glob("aes.bit"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    bench.assign("bad", function="aes", data=bytes(64))
    bench.assign("good", function="sha256", order=1)
    until(lambda: bench.failure("bad") and held(bench, "good"))
    failure = bench.failure("bad")
    assert (failure.code, failure.retryable) == ("fpga_pool.bitstream_refused", False)
    assert "bitstream of aes: sha256 is" in failure.message
    assert "FAULTED" not in bench.slot_states()


def test_a_missing_bitstream_fails_its_jobs_and_the_function_before_stays_loaded(bench, until, tmp_path):
    bench.assign("j")
    until(lambda: held(bench, "j") and bench.state() == "READY")
    bench.library._path("aes", "fast", "small").unlink()
    bench.assign("k", function="aes")
    until(lambda: bench.failure("k"))
    assert bench.failure("k").code == "fpga_pool.not_found"
    until(lambda: bench.state() == "READY")
    assert bench.observed().function == "sha256"


def test_a_library_that_cannot_be_read_faults_the_slot_and_is_tried_again(bench, until, monkeypatch):
    read, errors = bench.library.read, [OSError(5, "Input/output error")]

    def fail_first(*arguments):
        if errors:
            raise errors.pop()
        return read(*arguments)

    monkeypatch.setattr(bench.library, "read", fail_first)
    bench.assign("j", function="aes", data=bytes(64))
    until(lambda: held(bench, "j"))
    assert bench.slot_states()[:4] == ["LOADING", "FAULTED", "EMPTY", "LOADING"]


def test_an_input_that_the_function_cannot_take_fails_the_job_for_good(bench, until):
    bench.assign("j", function="mvm", data=b"neither matrix nor vector")
    until(lambda: bench.failure("j"))
    assert (bench.failure("j").code, bench.failure("j").retryable) == ("fpga_pool.invalid_input", False)
    until(lambda: bench.state() == "READY")


def test_an_input_that_cannot_be_read_fails_the_attempt_and_the_slot_goes_on(bench, until):
    bench.execute(bench.commands.assign("j"))
    bench.jobs.staged("j")  # but the file does not exist
    until(lambda: bench.failure("j"))
    assert (bench.failure("j").code, bench.failure("j").retryable) == ("fpga_pool.agent_error", True)
    bench.assign("k")
    until(lambda: held(bench, "k"))


def test_a_job_whose_result_finds_no_room_is_computed_again_and_loses_no_attempt(bench, until, monkeypatch):
    monkeypatch.setattr(slot_worker, "AGAIN_S", 0.02)
    sink = bench.settings.state_dir / "scratch" / "sim0-slot0.out"
    sink.symlink_to("/dev/full")  # the driver removes the link with the partial result
    bench.assign("j", data=b"abc")
    until(lambda: bench.told("j") == ["InputStaged", "JobStarted", "JobFinished"])
    assert not sink.is_symlink()
    assert bench.driver.state(bench.address).state is SlotState.READY


def test_nothing_stays_of_what_an_attempt_that_failed_has_written(bench, until, monkeypatch):
    sink = bench.settings.state_dir / "scratch" / "sim0-slot0.out"

    def fail(*args):
        sink.write_bytes(b"secret of p")
        raise InvalidInput("the input makes no sense")

    with monkeypatch.context() as patch:
        patch.setattr(bench.driver, "run", fail)
        bench.assign("j", data=b"abc")
        until(lambda: bench.failure("j"))
        assert not sink.exists()
    bench.assign("k")
    until(lambda: held(bench, "k") and not sink.exists())


def test_slot_memory_is_scrubbed_between_projects(bench, until):
    bench.assign("a", data=b"secret of p, and long", project_id="p")
    until(lambda: held(bench, "a") and bench.state() == "READY")
    assert b"secret" in bench.driver.memory(bench.address)
    bench.assign("b", data=b"q", project_id="q", order=1)
    until(lambda: held(bench, "b") and bench.state() == "READY")
    assert bench.driver.memory(bench.address).rstrip(b"\0") == b"q"


# Failures of drivers, and events that are not possible


def test_a_faulted_slot_whose_card_says_busy_is_offered_again(bench, until, monkeypatch):
    bench.driver.remove_card("sim0")
    until(lambda: bench.slot_states() == ["FAULTED"])
    monkeypatch.setattr(bench.driver, "state", lambda slot: SlotStatus(SlotState.BUSY))
    bench.driver.restore_card("sim0")
    until(lambda: bench.slot_states() == ["FAULTED", "EMPTY"])


@pytest.mark.parametrize("look", ["state", "inventory"])
@pytest.mark.parametrize("faulted", [False, True])
def test_a_slot_outlives_a_look_that_fails(bench, until, fails_once, look, faulted):
    if faulted:
        bench.driver.remove_card("sim0")
        until(lambda: bench.slot_states() == ["FAULTED"])
        failed = fails_once(bench.driver, look)
        bench.driver.restore_card("sim0")
    else:
        failed = fails_once(bench.driver, look)
    until(lambda: failed)
    bench.assign("j")
    until(lambda: held(bench, "j"))


def test_a_slot_is_taken_from_its_instance_though_that_fails_at_first(bench, until, fails_once):
    bench.execute(bench.commands.command(HoldSlot(instance="vm", project_id="p", function="sha256", lease_epoch=1)))
    until(lambda: bench.worker.guest.is_for("vm"))
    failed = fails_once(bench.worker.guest, "end")
    bench.execute(bench.commands.command(FreeSlot(instance="vm", lease_epoch=1)))
    bench.assign("j")
    until(lambda: held(bench, "j"))
    assert failed
    assert not bench.worker.guest.is_for("vm")


def test_an_event_that_is_not_possible_is_not_repeated(bench, until, monkeypatch):
    feed, refused = bench.jobs.feed, []

    def refuse_first_look(event, **others):
        if isinstance(event, CardSeen) and event.slot == bench.slot and not refused:
            refused.append(event)
        if event in refused:
            raise InvalidTransition("slot: CardSeen is not possible")
        return feed(event, **others)

    monkeypatch.setattr(bench.jobs, "feed", refuse_first_look)
    until(lambda: refused)
    bench.assign("j")
    until(lambda: held(bench, "j"))


def test_no_job_computes_on_memory_that_could_not_be_cleared_of_anothers_data(bench, until, fails_once):
    bench.assign("a", data=b"secret of p, and long", project_id="p")
    until(lambda: held(bench, "a") and bench.state() == "READY")
    fails_once(bench.driver, "scrub")
    bench.assign("b", data=b"b", project_id="q")
    until(lambda: bench.failure("b"))
    assert bench.failure("b").retryable
    until(lambda: "FAULTED, EMPTY" in ", ".join(bench.slot_states()))
    bench.assign("c", data=b"c", project_id="q")
    until(lambda: held(bench, "c"))
    assert bench.driver.memory(bench.address).rstrip(b"\0") == b"c"


# Releases


def test_the_release_of_a_running_job_stops_it_and_leaves_nothing(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    assert bench.execute(bench.commands.release("j")) == ["accepted"]
    until(lambda: bench.slot_states() == ["LOADING", "READY", "BUSY", "READY"])
    until(lambda: bench.files() == [])
    assert bench.told("j") == ["InputStaged", "JobStarted", "JobReleased"]


def test_a_job_that_is_released_just_before_its_computation_begins_is_stopped_too(new_bench, until, monkeypatch):
    bench = new_bench(hang_grace_s=60.0)
    run = bench.driver.run

    def released_in_between(*arguments):
        bench.execute(bench.commands.release("j"))  # the resulting stop request comes too early
        return run(*arguments)

    monkeypatch.setattr(bench.driver, "run", released_in_between)
    bench.assign("j", function="wordcount")
    until(lambda: bench.told("j") == ["InputStaged", "JobStarted", "JobReleased"])
    until(lambda: bench.slot_states() == ["LOADING", "READY", "BUSY", "READY"])
    until(lambda: bench.files() == [])


def test_a_job_that_comes_back_to_another_slot_is_stopped_on_the_first_one(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    bench.execute(bench.commands.assign("j", attempt=2, slot=OTHER, function="wordcount"))
    until(lambda: bench.state() == "READY")
    until(lambda: bench.observed(OTHER).job == "j")
    assert "JobFailed" not in bench.told("j")
    bench.execute(bench.commands.release("j", slot=OTHER))
    until(lambda: bench.files() == [])


def test_a_drain_lets_the_running_job_end_and_begins_nothing_new(new_bench, until):
    bench = new_bench(drain_timeout_s=10.0)
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] in (["JobStarted"], ["JobFinished"]))
    bench.stop()
    assert bench.told("j") == DONE
    bench.start()
    assert held(bench, "j")


def test_a_drain_stops_a_job_that_does_not_end_in_time_and_the_next_start_computes_it_again(new_bench, until):
    bench = new_bench(hang_grace_s=60.0, drain_timeout_s=0.05)
    bench.assign("j", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    bench.stop()
    assert bench.failure("j").code == "fpga_pool.stopped"
    bench.start()
    assert bench.jobs.get("j").phase is Phase.FAILED
    bench.execute(bench.commands.assign("j", attempt=2))
    until(lambda: bench.told("j")[-2:] == ["InputStaged", "JobStarted"])


def test_the_library_is_read_again_for_each_load(bench, until):
    assert isinstance(bench.library, BitstreamLibrary)
    bench.assign("a", function="sha256")
    bench.assign("b", function="aes", data=bytes(64), order=1)
    until(lambda: held(bench, "a") and held(bench, "b"))
    assert bench.slot_states().count("LOADING") == 2


def test_slots_of_a_card_load_in_turn_in_the_order_in_which_their_loads_begin(bench, until, monkeypatch):
    monkeypatch.setattr(machine, "LONGEST_TURN_S", 60.0)
    loads = []
    load, read = bench.driver.load, bench.library.read

    def noted(address, bitstream):
        loads.append(("begins", address.region))
        load(address, bitstream)
        loads.append(("ends", address.region))

    def slow_for_the_first(*arguments):
        if threading.current_thread().name == f"slot-{SLOT}":
            time.sleep(0.05)  # the second slot gets its bitstream earlier
        return read(*arguments)

    monkeypatch.setattr(bench.driver, "load", noted)
    monkeypatch.setattr(bench.library, "read", slow_for_the_first)
    for order, function in enumerate(["sha256", "wordcount"] * 3):
        loads.clear()
        # The later slot is woken first.
        commands = [
            bench.commands.assign(f"{slot[-1]}-{order}", slot=slot, order=order, function=function)
            for slot in (OTHER, SLOT)
        ]
        assert bench.execute(*commands) == ["accepted", "accepted"]
        until(lambda: len(loads) == 4)
        assert loads == [("begins", "slot0"), ("ends", "slot0"), ("begins", "slot1"), ("ends", "slot1")]
        until(lambda: [bench.observed(slot).state for slot in (SLOT, OTHER)] == [SlotState.READY] * 2)
        bench.execute(*(bench.commands.release(f"{slot[-1]}-{order}", slot=slot) for slot in (OTHER, SLOT)))


# Evictions and the CPU pool


CPU_WORKER = "h0/cpu/worker0"


def test_an_evicted_job_leaves_its_slot_at_once_and_ends_on_the_cpu(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount", data=b"one two")
    until(lambda: bench.state() == "BUSY")
    assert bench.execute(bench.commands.evict("j"), bench.commands.assign("k")) == ["accepted", "accepted"]
    # 7 bytes take 70 ns on the CPU. The slot would take 300 s.
    again = bench.commands.assign("j", attempt=2, function="wordcount", slot=CPU_WORKER, input_bytes=7)
    bench.execute(again)
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    assert bench.told("j") == ["InputStaged", "JobStarted", "JobEvicted", "InputStaged", "JobStarted", "JobFinished"]
    until(lambda: bench.slot_states()[-1:] == ["READY"])
    assert bench.observed(CPU_WORKER).kind == "cpu"


def test_a_worker_of_the_cpu_loads_nothing(bench, until):
    bench.assign("j", slot=CPU_WORKER)
    bench.assign("k", slot=CPU_WORKER, function="wordcount")
    until(lambda: held(bench, "j") and held(bench, "k"))
    states = [item.state.value for item in bench.scheduler.reports if getattr(item, "slot", "") == CPU_WORKER]
    assert "LOADING" not in states
