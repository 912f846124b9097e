"""The contract of all runners (`Runner`): the simulated one, and that of Nova on a compute service in memory.

The runner of libvirt needs a hypervisor: tests/functional/compute/test_gang_runner.py.
"""

import uuid
from importlib.metadata import entry_points

import pytest

from fpga_pool.drivers.runners.domain import Runner
from fpga_pool.drivers.runners.simulated import SimulatedRunner
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import Tier

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND


class SimulatedBench:
    """Processes that are described by files."""

    def __init__(self, directory, clock):
        self._clock = clock
        self._new = lambda: SimulatedRunner(directory, lambda: clock[0], 20.0)
        self.runner = self._new()

    def restart(self):
        self.runner = self._new()

    def launch(self, spec, processor, tier):
        self.runner.launch(spec, processor, tier)

    def observe(self):
        self._clock[0] += 10.0
        return self.runner.observe()


class NovaBench:
    """Processes that are servers of a compute service."""

    def __init__(self, host):
        self._host = host

    @property
    def runner(self):
        return self._host.runner

    def restart(self):
        self._host.restarted()

    def launch(self, spec, processor, tier):
        self._host.later(10.0)
        self.runner.launch(spec, processor, tier)
        self._host.api.build()
        for _ in range(3):  # Nova builds it asynchronously, and the agent sets its tier after that
            if self.observe()[spec.key].tier is None:
                self.runner.set_tier(spec.key, tier)

    def observe(self):
        return self._host.observe()


@pytest.fixture(params=["simulated", "nova"])
def bench(request, tmp_path, clock):
    if request.param == "simulated":
        return SimulatedBench(tmp_path, clock)
    pytest.importorskip("libvirt")
    return NovaBench(request.getfixturevalue("host"))


def spec(gang=None, attempt=1, **fields):
    key = Key(gang or str(uuid.uuid4()), 0, attempt)
    return ProcessSpec(key=key, processes=1, cpu_usage=0.5, work_s=10_000.0, command="solve", **fields)


def places(bench):
    return {key: (seen.phase, seen.processor, seen.tier) for key, seen in bench.observe().items()}


def test_runners_are_registered_by_their_class():
    found = {point.name: point for point in entry_points(group="fpga_pool.runners")}
    # Run this suite on each runner that is added.
    assert found.keys() == {"libvirt", "nova", "simulated"}
    assert all(issubclass(found[name].load(), Runner) for name in ("nova", "simulated"))


@pytest.mark.parametrize("tier", [FRONT, BEHIND])
def test_a_process_runs_in_its_place_once_however_often_it_is_launched(bench, tier):
    wanted = spec()
    bench.launch(wanted, 1, tier)
    bench.launch(wanted, 1, tier)
    assert places(bench) == {wanted.key: (Phase.RUNNING, 1, tier)}


def test_the_next_agent_finds_what_runs(bench):
    wanted = spec()
    bench.launch(wanted, 1, FRONT)
    bench.restart()
    assert places(bench) == {wanted.key: (Phase.RUNNING, 1, FRONT)}


def test_a_place_is_for_one(bench):
    first = spec()
    bench.launch(first, 1, FRONT)
    with pytest.raises(Conflict, match=r"processor 1: process .* is in its foreground"):
        bench.launch(spec(), 1, FRONT)
    assert places(bench) == {first.key: (Phase.RUNNING, 1, FRONT)}


def test_a_process_changes_its_tier_where_it_is(bench):
    wanted = spec()
    bench.launch(wanted, 1, BEHIND)
    bench.runner.set_tier(wanted.key, FRONT)
    bench.runner.set_tier(wanted.key, FRONT)
    assert places(bench) == {wanted.key: (Phase.RUNNING, 1, FRONT)}


def test_a_process_that_is_not_here_has_no_tier(bench):
    with pytest.raises(NotFound):
        bench.runner.set_tier(Key("nobody", 0, 1), FRONT)


def test_nothing_is_left_of_a_process_that_is_ended(bench):
    kept, ended = spec(), spec()
    bench.launch(kept, 0, FRONT)
    bench.launch(ended, 1, FRONT)
    bench.observe()
    bench.runner.end(ended.key)
    bench.runner.end(ended.key)
    bench.runner.end(Key("nobody", 0, 1))
    assert places(bench) == {kept.key: (Phase.RUNNING, 0, FRONT)}


def test_a_process_that_is_saved_goes_on_on_another_processor(bench):
    first = spec()
    bench.launch(first, 0, BEHIND)
    for _ in range(6):
        seen = bench.observe()[first.key]
        if seen.phase is Phase.SAVED:
            break
        bench.runner.save(first.key)
    assert seen.phase is Phase.SAVED
    bench.runner.leave(first.key)
    assert bench.observe() == {}
    heir = spec(first.key.gang, 2, saved=seen.saved, done_s=seen.done_s)
    bench.launch(heir, 1, FRONT)
    assert places(bench) == {heir.key: (Phase.RUNNING, 1, FRONT)}
    assert bench.observe()[heir.key].done_s >= seen.done_s
