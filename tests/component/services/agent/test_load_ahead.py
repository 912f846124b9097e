"""Loads of functions ahead of jobs: one agent with the real simulated driver."""

from fpga_pool.model.messages.agents import HoldSlot, LoadFunction

SLOT = "h0/sim0/slot0"
PATIENCE_S = 60.0


def ahead(bench, function="sha256", replaces=""):
    return bench.commands.command(LoadFunction(function=function, replaces=replaces))


def functions(bench):
    """Return the functions whose loading the slot has reported."""
    return [item.function for item in list(bench.scheduler.reports) if getattr(item, "state", "") == "LOADING"]


def test_an_empty_slot_loads_and_the_job_that_comes_finds_its_function(bench, until):
    assert bench.execute(ahead(bench)) == ["accepted"]
    until(lambda: bench.slot_states() == ["LOADING", "READY"])
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] == ["JobFinished"])
    assert functions(bench) == ["sha256"]


def test_what_was_decided_about_another_state_of_the_slot_is_not_done(bench, until):
    bench.execute(ahead(bench))
    until(lambda: bench.slot_states() == ["LOADING", "READY"])
    # A scheduler that does not know of this load sends another one, which is outdated. The next one is up to date.
    bench.execute(ahead(bench, "aes"))
    bench.execute(ahead(bench, "wordcount", replaces="sha256"))
    until(lambda: functions(bench) == ["sha256", "wordcount"])


def test_a_repeated_command_loads_nothing(bench, until):
    command = ahead(bench)
    bench.execute(command)
    until(lambda: bench.slot_states() == ["LOADING", "READY"])
    assert bench.execute(command) == ["repeated"]


def test_a_job_comes_before_what_it_was_told_with(bench, until):
    bench.execute(ahead(bench, "aes"), bench.commands.assign("j", function="sha256"))
    until(lambda: bench.slot_states() == ["LOADING", "READY"])
    assert functions(bench) == ["sha256"]


def test_a_running_job_is_not_stopped_and_nothing_is_loaded_after_it(new_bench, until):
    bench = new_bench(hang_grace_s=60.0)
    bench.assign("j", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    bench.execute(ahead(bench, "sha256"))
    bench.execute(bench.commands.evict("j"))
    until(lambda: bench.told("j")[-1:] == ["JobEvicted"])
    bench.assign("k", function="wordcount")
    until(lambda: bench.state() == "BUSY")
    assert functions(bench) == ["wordcount"]


def test_an_instance_gets_the_slot_with_its_own_function(bench, until):
    action = HoldSlot(instance="vm", project_id="p", function="aes", lease_epoch=1)
    bench.execute(ahead(bench, "sha256"), bench.commands.command(action))
    bench.jobs.holds.wait_ready("vm", [SLOT], PATIENCE_S)
    until(lambda: functions(bench)[-1:] == ["aes"])
    assert bench.agent.heartbeat().slots[0].function == "aes"


def test_a_function_without_bitstream_leaves_the_slot_as_it_was(bench, until):
    bench.library._path("aes", "fast", "small").unlink()
    bench.execute(ahead(bench, "aes"))
    until(lambda: bench.slot_states() == ["LOADING", "EMPTY"])


def test_a_card_that_is_back_loads_nothing_it_was_told_while_it_was_away(bench, until):
    bench.driver.remove_card("sim0")
    until(lambda: bench.slot_states() == ["FAULTED"])
    bench.execute(ahead(bench, "aes"))
    bench.driver.restore_card("sim0")
    until(lambda: bench.slot_states() == ["FAULTED", "EMPTY"])
    bench.execute(ahead(bench, "sha256"))
    until(lambda: bench.slot_states()[-1] == "READY")
    assert functions(bench) == ["sha256"]


def test_what_takes_the_place_of_a_load_ahead_changes_nothing_and_counts_as_executed(bench, until):
    bench.assign("j")
    until(lambda: bench.told("j")[-1:] == ["JobFinished"] and bench.state() == "READY")
    before, files = bench.slot_states(), bench.files()
    command = ahead(bench, "aes", replaces="sha256")
    assert bench.execute(command.without_effect()) == ["accepted"]
    assert bench.agent.heartbeat().slots[0].sequence == command.sequence
    # The load itself counts as a repetition after that.
    assert bench.execute(command) == ["repeated"]
    bench.execute(ahead(bench, "wordcount", replaces="sha256"))
    until(lambda: functions(bench)[-1] == "wordcount")
    assert functions(bench) == ["sha256", "wordcount"]
    assert bench.slot_states()[: len(before)] == before
    assert (bench.told("j")[-1], bench.files()) == ("JobFinished", files)
