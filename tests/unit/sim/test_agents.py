"""An agent in simulated time executes the instructions of the state machine, for commands of every kind."""

from dataclasses import dataclass, field

import pytest

from fpga_pool.model.agent.objects import AgentParameters
from fpga_pool.model.messages.agents import (
    AssignJob,
    Command,
    EvictJob,
    FreeSlot,
    HoldSlot,
    JobEvicted,
    JobFailed,
    JobFinished,
    LoadFunction,
    ReleaseFlow,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.sim.agents import SimulatedAgent
from fpga_pool.sim.engine import Delays, Engine
from support.simulated import fresh_hosts

SLOT, OTHER = "node-1/sim0/slot0", "node-1/sim0/slot1"
PARAMETERS = AgentParameters(hang_factor=2.0, hang_grace_s=1.0, fault_pause_s=(2.0, 60.0))


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    """Return a catalogue with a board of two slots that load in 0.5 s."""
    return make_catalogue(
        dict.fromkeys(("aes", "sha256"), (1.0, "small", "large")), slots=["small", "large"], load_s=0.5
    )


@dataclass
class Surroundings:
    """Surroundings in which inputs arrive at once and computations take ten seconds."""

    reports: list = field(default_factory=list)
    lasts_s: float = 10.0

    def report(self, host, reports):
        self.reports += reports

    def lost_source(self, assignment):
        return ""

    def is_fetched(self, job):
        return True

    def arrives_at(self, assignment):
        return 0.0

    def input_age_s(self, assignment):
        return None

    def received_bytes(self, assignment):
        return 0

    def seconds(self, assignment, board):
        return self.lasts_s


class Bench:
    def __init__(self, catalogue):
        self.engine, self.world = Engine(), Surroundings()
        (host,) = fresh_hosts(catalogue, "fast", hosts=1, cards=1, egress_bps=1e9, ingress_bps=1e9)
        delays = Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0)
        self.agent = SimulatedAgent(host, self.engine, catalogue, self.world, delays, PARAMETERS)
        self._sequence = 0

    def wait(self, until_s):
        self.engine.at(until_s, lambda: None)
        self.engine.run(until_s)

    def execute(self, action, slot=SLOT):
        self._sequence += 1
        command = Command(
            id=f"c{self._sequence}",
            shard="s",
            epoch=1,
            host="node-1",
            slot=slot,
            sequence=self._sequence,
            action=action,
        )
        (outcome,) = self.agent.execute("s", 1, [command])
        return outcome.outcome

    def assign(self, job, *, slot=SLOT, function="aes", **fields):
        known = {"attempt": 1, "project_id": "p", "input_bytes": 1, "order": 0, "expected_s": 10.0}
        return self.execute(AssignJob(**known | fields, job=job, function=function), slot)

    def told(self, *kinds):
        return [(report, report.at) for report in self.world.reports if isinstance(report, kinds)]

    def states(self, slot=SLOT):
        return [(report.state.value, report.at) for report, _ in self.told(SlotChanged) if report.slot == slot]


@pytest.fixture
def bench(catalogue):
    return Bench(catalogue)


def test_a_job_is_loaded_computed_and_delivered_at_its_times(bench):
    bench.assign("j")
    bench.wait(100.0)
    assert bench.states() == [("LOADING", 0.0), ("READY", 0.5), ("BUSY", 0.5), ("READY", 10.5)]
    assert [at for _, at in bench.told(JobFinished, ResultDelivered)] == [10.5, 10.5]
    assert bench.agent.heartbeat().jobs == ()


def test_an_evicted_job_leaves_its_slot_at_once_and_goes_on_elsewhere_from_where_it_was(bench):
    bench.assign("j")
    bench.wait(5.5)
    bench.execute(EvictJob(job="j", attempt=1, keep_progress=True))
    bench.assign("j", slot=OTHER, attempt=2, done=0.5)
    bench.wait(100.0)
    assert [report.done for report, _ in bench.told(JobEvicted)] == [pytest.approx(0.5)]
    assert bench.told(JobFailed) == []
    # It loads for 0.5 s, and half of its 10 s remain.
    assert [at for _, at in bench.told(JobFinished)] == [pytest.approx(11.0)]


def test_a_slot_that_an_instance_holds_is_loaded_for_it_and_takes_no_job_until_it_is_free(bench):
    bench.execute(HoldSlot(instance="vm", project_id="p", function="sha256", lease_epoch=1))
    bench.assign("j")
    bench.wait(20.0)
    (slot, _) = bench.agent.heartbeat().slots
    assert (slot.instance, slot.function, slot.state.value) == ("vm", "sha256", "READY")
    assert bench.told(JobFinished) == []
    bench.execute(FreeSlot(instance="vm", lease_epoch=1))
    bench.wait(100.0)
    assert [at for _, at in bench.told(JobFinished)] == [pytest.approx(30.5)]


def test_a_slot_loads_ahead_of_jobs(bench):
    bench.execute(LoadFunction(function="aes", replaces=""))
    bench.wait(1.0)
    assert bench.states() == [("LOADING", 0.0), ("READY", 0.5)]


def test_loads_of_one_card_take_turns(bench):
    bench.assign("j")
    bench.assign("k", slot=OTHER)
    bench.wait(2.0)
    assert (bench.states()[1], bench.states(OTHER)[1]) == (("READY", 0.5), ("READY", 1.0))


def test_a_computation_that_hangs_is_stopped(bench):
    bench.world.lasts_s = 1000.0
    bench.assign("j")
    bench.wait(100.0)
    # 2 x 10 + 1 s after the load.
    assert [(report.code, at) for report, at in bench.told(JobFailed)] == [("fpga_pool.stopped", 21.5)]


@pytest.mark.parametrize("at_s", [0.0, 0.25, 5.0], ids=["idle", "loading", "computing"])
def test_a_slot_that_fails_stays_so_until_it_is_repaired(bench, at_s):
    if at_s:
        bench.assign("j")
    bench.wait(at_s)
    bench.agent.fail_slot(SLOT)
    bench.wait(90.0)
    assert bench.states()[-1] == ("FAULTED", at_s)
    bench.agent.repair_slot(SLOT)
    bench.assign("j", attempt=2)
    bench.wait(200.0)
    assert len(bench.told(JobFinished)) == 1


def test_a_slot_that_fails_while_it_is_scrubbed_for_an_instance_is_prepared_when_it_is_repaired(bench):
    bench.execute(HoldSlot(instance="vm", project_id="p", function="sha256", lease_epoch=1))
    bench.agent.fail_slot(SLOT)
    bench.wait(20.0)
    assert bench.states() == [("FAULTED", 0.0)]
    bench.agent.repair_slot(SLOT)
    bench.wait(40.0)
    (slot, _) = bench.agent.heartbeat().slots
    assert (slot.instance, slot.state.value) == ("vm", "READY")


@pytest.mark.parametrize(("back_s", "delivered_s"), [(12.0, 20.5), (30.0, 30.0)], ids=["in transit", "overdue"])
def test_a_result_in_transit_when_its_host_vanishes_is_delivered_when_it_is_back(bench, back_s, delivered_s):
    bench.assign("j", result_transfer=(RateSegment(0.0, 10.0, 8.0),))
    bench.wait(11.0)
    bench.agent.vanish()
    bench.wait(back_s)
    bench.agent.come_back()
    bench.wait(100.0)
    assert [at for _, at in bench.told(ResultDelivered)] == [delivered_s]
    assert bench.agent.heartbeat().jobs == ()


def test_a_host_that_comes_back_goes_on_with_what_its_journal_holds(bench):
    bench.assign("j")
    bench.wait(5.0)
    bench.agent.vanish()
    bench.engine.at(8.0, lambda: None)
    bench.wait(8.0)
    assert bench.agent.execute("s", 1, []) == []
    bench.agent.come_back()
    bench.wait(100.0)
    # The load and the whole computation are repeated.
    assert [at for _, at in bench.told(JobFinished)] == [pytest.approx(18.5)]
    assert bench.agent.heartbeat().boot == 2


def test_a_command_that_it_cannot_carry_out_is_refused_and_a_repeat_answered(bench):
    assert bench.execute(ReleaseFlow(job="j", attempt=1)) == "refused"
    assert bench.assign("j") == "accepted"
    bench._sequence -= 1
    assert bench.assign("j") == "repeated"
