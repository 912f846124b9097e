"""Simulated processes: progress rates as in the paper, and processes that outlive their agent."""

import pytest

from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.drivers.runners.simulated import SimulatedRunner
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import Tier

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
#: Beside a neighbour the foreground loses 2 %, and a background process of a gang of one uses 90 % of the idle time.
PARAMS = ProgressParams(loss=(0.02, 0.02), single=(0.9, 0.9))


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def new_runner(tmp_path, clock):
    return lambda migration_s=20.0: SimulatedRunner(tmp_path, clock, migration_s, PARAMS)


def spec(gang, work_s, usage=0.5, **fields):
    return ProcessSpec(key=Key(gang, 0, 1), processes=1, cpu_usage=usage, work_s=work_s, **fields)


def test_a_process_alone_has_its_processor_in_either_tier(new_runner, clock):
    runner = new_runner()
    runner.launch(spec("a", 10.0), 0, FRONT)
    runner.launch(spec("b", 10.0), 1, BEHIND)
    clock.now_s += 4.0
    assert [(seen.rate, seen.phase) for seen in runner.observe().values()] == [(1.0, Phase.RUNNING)] * 2
    clock.now_s += 6.0
    assert {seen.phase for seen in runner.observe().values()} == {Phase.EXITED}


@pytest.mark.parametrize(
    ("front", "behind", "rate"),
    [
        (0.5, 0.5, 0.9),  # 0.9 x min(1, 0.5 / 0.5)
        (0.5, 1.0, 0.45),  # 0.9 x 0.5 / 1
        (0.2, 0.5, 0.9),  # as much as it can use is idle
        (0.96, 0.5, 0.0),  # section 2.1: no progress from 96 % on
    ],
)
def test_the_background_gets_what_the_foreground_leaves(new_runner, front, behind, rate):
    runner = new_runner()
    runner.launch(spec("front", 100.0, front), 0, FRONT)
    runner.launch(spec("behind", 100.0, behind), 0, BEHIND)
    seen = runner.observe()
    assert seen[Key("front", 0, 1)].rate == pytest.approx(0.98)
    assert seen[Key("behind", 0, 1)].rate == pytest.approx(rate)


def test_rates_change_when_the_neighbour_ends_however_late_somebody_looks(new_runner, clock):
    """9.8 s of work at rate 0.98 take 10 s. The other process has then done 9 s of 19 s; the rest takes 10 s alone."""
    runner = new_runner()
    runner.launch(spec("front", 9.8), 0, FRONT)
    runner.launch(spec("behind", 19.0), 0, BEHIND)
    clock.now_s += 100.0
    seen = runner.observe()
    ends = {key.gang: running.progress_at for key, running in seen.items()}
    assert ends == {"front": pytest.approx(1010.0), "behind": pytest.approx(1020.0)}
    assert {running.phase for running in seen.values()} == {Phase.EXITED}
    assert seen[Key("behind", 0, 1)].cpu_s == pytest.approx(9.5)


def test_a_swap_changes_both_rates(new_runner, clock):
    runner = new_runner()
    runner.launch(spec("a", 100.0), 0, FRONT)
    runner.launch(spec("b", 100.0, 1.0), 0, BEHIND)
    runner.end(Key("a", 0, 1))
    runner.set_tier(Key("b", 0, 1), FRONT)
    runner.launch(spec("c", 100.0), 0, BEHIND)
    rates = {key.gang: running.rate for key, running in runner.observe().items()}
    assert rates == {"b": pytest.approx(0.98), "c": 0.0}  # b uses the whole processor


def test_what_is_told_of_progress_stays_the_same_while_it_goes_on_like_that(new_runner, clock):
    runner = new_runner()
    runner.launch(spec("a", 100.0), 0, FRONT)
    clock.now_s += 7.0
    first = runner.observe()
    clock.now_s += 7.0
    assert {key: (seen.done_s, seen.rate, seen.progress_at) for key, seen in runner.observe().items()} == {
        key: (seen.done_s, seen.rate, seen.progress_at) for key, seen in first.items()
    }


def test_a_process_that_is_saved_makes_no_progress_and_goes_on_elsewhere(new_runner, clock):
    runner, key = new_runner(migration_s=5.0), Key("a", 0, 1)
    runner.launch(spec("a", 100.0), 0, BEHIND)
    clock.now_s += 30.0
    runner.save(key)
    clock.now_s += 4.0
    runner.save(key)  # the save continues and does not start again
    assert runner.observe()[key].phase is Phase.SAVING
    clock.now_s += 1.0
    saved = runner.observe()[key]
    assert (saved.phase, saved.done_s) == (Phase.SAVED, 30.0)
    runner.end(key)
    runner.launch(spec("a", 100.0, done_s=saved.done_s), 1, FRONT)
    clock.now_s += 70.0
    resumed = runner.observe()[key]
    assert resumed.phase is Phase.EXITED
    assert (saved.cpu_s, resumed.cpu_s) == (15.0, 35.0)  # half a processor for 30 s, and for 70 s


def test_processes_outlive_their_runner_and_die_with_their_files(new_runner, clock, tmp_path):
    new_runner().launch(spec("a", 10.0), 0, FRONT)
    new_runner().launch(spec("a", 10.0), 0, FRONT)  # the second launch has no effect
    clock.now_s += 10.0
    assert new_runner().observe()[Key("a", 0, 1)].phase is Phase.EXITED
    next(tmp_path.glob("*.json")).unlink()
    assert new_runner().observe() == {}


def test_the_neighbour_of_a_process_that_died_has_the_processor(new_runner, clock, tmp_path):
    runner = new_runner()
    runner.launch(spec("a", 100.0), 0, FRONT)
    runner.launch(spec("b", 100.0, 1.0), 0, BEHIND)
    next(tmp_path.glob("a.*.json")).unlink()
    assert runner.observe()[Key("b", 0, 1)].rate == 1.0


def test_a_place_is_for_one(new_runner):
    runner = new_runner()
    runner.launch(spec("a", 10.0), 0, FRONT)
    runner.launch(spec("b", 10.0), 0, BEHIND)
    with pytest.raises(Conflict, match=r"processor 0: process a\.1\.0 is in its foreground"):
        runner.launch(spec("c", 10.0), 0, FRONT)
    with pytest.raises(NotFound):
        runner.set_tier(Key("c", 0, 1), FRONT)
    runner.end(Key("c", 0, 1))  # no such process: no effect


def test_all_processes_of_a_gang_use_the_same_share_on_all_hosts(tmp_path, clock):
    """Section 2.1: for gangs of several the share is drawn, one figure for all their processes."""
    rates = set()
    for index in range(3):
        runner = SimulatedRunner(tmp_path / str(index), clock, 20.0)
        runner.launch(spec("front", 100.0, 0.5), 0, FRONT)
        wide = ProcessSpec(key=Key("wide", index, 1), processes=3, cpu_usage=0.5, work_s=100.0)
        runner.launch(wide, 0, BEHIND)
        rates.add(runner.observe()[wide.key].rate)
    assert len(rates) == 1
    assert 0.198 <= rates.pop() <= 0.766


def test_what_a_runner_was_writing_when_it_was_killed_is_gone_with_the_next(new_runner, tmp_path):
    new_runner().launch(spec("a", 10.0), 0, FRONT)
    (whole,) = tmp_path.iterdir()
    whole.with_suffix(".new").write_text("{")
    assert [key.gang for key in new_runner().observe()] == ["a"]
    assert [*tmp_path.iterdir()] == [whole]
