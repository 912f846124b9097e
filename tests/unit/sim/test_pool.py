"""A whole pool in simulated time."""

import numpy as np
import pytest

from fpga_pool.core.makespan import Ect, Ljf, Sjf
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.agents import AssignJob
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.pool import Delays, SimulatedPool
from support.simulated import QUICK, fresh_hosts

NO_DELAY = Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0)
NO_LEAD = PoolSettings(dispatch_lead_s=0.0)


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    """Return a catalogue with a board of two small slots and a large one, which load in 0.5 s."""
    functions = {"aes": (1.0, "small", "large"), "sha256": (2.0, "small", "large"), "flow": (4.0, "large")}
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.5, b_s_per_byte=1e-6)


@pytest.fixture
def make_pool(catalogue):
    def make(hosts=1, cards=1, **options):
        fresh = fresh_hosts(catalogue, "fast", hosts=hosts, cards=cards, egress_bps=8e6, ingress_bps=8e6)
        return SimulatedPool(catalogue, fresh, **options)

    return make


def batch(functions, input_bytes=1000, uuid="b", requesters=("node-1",)):
    jobs = tuple(
        JobRequest(
            uuid=f"{uuid}.{i}", name="", function=name, requester=requesters[i % len(requesters)],
            input_bytes=input_bytes if isinstance(input_bytes, int) else int(input_bytes[i]),
        )
        for i, name in enumerate(functions)
    )  # fmt: skip
    return BatchRequest(uuid=uuid, project_id="p", user_id="u", name="", policy="", jobs=jobs)


def mixed_batch(jobs=60):
    rng = np.random.default_rng(7)
    return batch(
        rng.choice(["aes", "sha256", "flow"], jobs).tolist(),
        rng.integers(10**4, 10**6, jobs),
        requesters=("node-1", "node-2", "node-3"),
    )


@pytest.mark.parametrize("policy", [Ect(), Sjf(), Ljf()], ids=lambda policy: policy.name)
def test_a_batch_runs_to_its_end_as_the_plan_said(make_pool, policy):
    outcome = make_pool(hosts=3, cards=2).run_batch(mixed_batch(), policy)
    assert outcome.batch.state is BatchState.COMPLETED
    assert {job.state for job in outcome.jobs} == {JobState.COMPLETED}
    assert {job.attempt for job in outcome.jobs} == {1}
    assert {slot.state for slot in outcome.slots} <= {SlotState.READY, SlotState.EMPTY}
    assert outcome.batch.lower_bound_s <= outcome.makespan_s
    # The plan does not include the delays of commands, staging and slots.
    assert outcome.makespan_s == pytest.approx(outcome.batch.planned_makespan_s, rel=0.06)


@pytest.mark.parametrize("policy", [QUICK, Ect(), Sjf(), Ljf()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("lead_s", [0.0, 0.8])
def test_without_delays_a_batch_runs_exactly_as_planned(make_pool, policy, lead_s):
    pool = make_pool(hosts=3, cards=2, settings=PoolSettings(dispatch_lead_s=lead_s), delays=NO_DELAY)
    outcome = pool.run_batch(mixed_batch(), policy)
    assert outcome.makespan_s == pytest.approx(outcome.batch.planned_makespan_s, rel=1e-5)


def test_without_delays_one_slot_does_exactly_what_was_planned(make_pool):
    pool = make_pool(settings=NO_LEAD, delays=NO_DELAY)
    outcome = pool.run_batch(batch(["flow", "flow"]), Ect())
    # The large slot loads for 0.5 s, then runs two jobs of 4 s + 1000 x 1 us; the input is local.
    assert outcome.makespan_s == pytest.approx(0.5 + 2 * 4.001)
    assert outcome.batch.planned_makespan_s == pytest.approx(outcome.makespan_s)


def test_loads_of_one_card_take_turns(make_pool):
    pool = make_pool(settings=NO_LEAD, delays=NO_DELAY)
    outcome = pool.run_batch(batch(["aes"] * 3), Ect())
    # Three slots load one after the other, 0.5 s each.
    assert sorted(job.started_at for job in outcome.jobs) == pytest.approx([0.5, 1.0, 1.5])


def test_loads_of_different_cards_do_not_wait_for_each_other(make_pool):
    pool = make_pool(cards=3, settings=NO_LEAD, delays=NO_DELAY)
    outcome = pool.run_batch(batch(["flow"] * 3), Ect())
    assert [job.started_at for job in outcome.jobs] == pytest.approx([0.5] * 3)


def test_a_job_starts_after_its_input_has_moved(make_pool):
    pool = make_pool(hosts=2, settings=NO_LEAD, delays=Delays(command_s=0.0, staging_s=0.25, turnaround_s=0.0))
    away = batch(["flow"] * 2, 2 * 10**6)
    outcome = pool.run_batch(away, Ect())
    remote = next(job for job in outcome.jobs if job.host == "node-2")
    # 2 MB at 8 Mbit/s take 2 s, then 0.25 s to stage; the load has ended by then.
    assert remote.transfer_began_at == 0.0
    assert remote.staged_at == remote.started_at == pytest.approx(2.25)
    # The other input is on its own host, so nothing is transferred.
    assert [job.transfer_began_at for job in outcome.jobs if job.host == "node-1"] == [None]


def test_a_small_input_comes_at_once_and_its_transfer_has_no_begin(make_pool):
    pool = make_pool(hosts=2, settings=NO_LEAD, delays=NO_DELAY)
    outcome = pool.run_batch(batch(["flow"] * 2, SMALL_INPUT_BYTES), Ect())
    remote = next(job for job in outcome.jobs if job.host == "node-2")
    # 64 KiB at 8 Mbit/s.
    assert (remote.transfer_began_at, remote.staged_at) == (None, pytest.approx(0.065536))


def test_a_second_batch_finds_the_functions_loaded(make_pool):
    pool = make_pool(settings=NO_LEAD, delays=NO_DELAY)
    first = pool.run_batch(batch(["flow"], uuid="a"), Ect())
    second = pool.run_batch(batch(["flow"], uuid="b"), Ect())
    assert (first.makespan_s, second.makespan_s) == (pytest.approx(4.501), pytest.approx(4.001))
    assert sum(slot.reconfigurations for slot in second.slots) == 1


def test_refitted_time_models_are_what_jobs_take(make_pool):
    pool = make_pool(settings=NO_LEAD, delays=NO_DELAY, models={("flow", "fast"): TimeModel(6.0, 0.0)})
    assert pool.run_batch(batch(["flow"]), Ect()).makespan_s == pytest.approx(6.5)


def test_the_same_batch_goes_the_same_way_every_time(make_pool):
    runs = [make_pool(hosts=3, cards=2).run_batch(mixed_batch(30), Ect(), seed=3) for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_run_that_is_cut_short_tells_how_far_it_came(make_pool):
    outcome = make_pool(settings=NO_LEAD, delays=NO_DELAY).run_batch(batch(["flow"] * 3), Ect(), until_s=5.0)
    assert [job.state for job in outcome.jobs] == [JobState.COMPLETED, JobState.RUNNING, JobState.STAGED]
    assert outcome.batch.state is BatchState.RUNNING


def test_what_the_live_pool_refuses_is_refused(make_pool):
    with pytest.raises(InvalidInput, match="at least one job"):
        make_pool().run_batch(batch([]), Ect())


def test_results_are_back_when_the_plan_says(make_catalogue):
    entry = {
        "version": "1.0", "slot_kinds": ["small", "large"], "io_bps": 8e6, "preemptible": False, "source": "test",
        "cpu_time": {"a_s": 0, "b_s_per_byte": 1e-5}, "fpga_time": {"fast": {"a_s": 1.0, "b_s_per_byte": 1e-9}},
        "result_size": {"a_bytes": 0, "b_bytes_per_byte": 4},
    }  # fmt: skip
    catalogue = make_catalogue({"grow": entry}, slots=["small", "large"], load_s=1e-6)
    hosts = fresh_hosts(catalogue, "fast", hosts=1, cards=2, egress_bps=8e6, ingress_bps=8e6)
    hosts.append(SimulatedHost(name="tenant", egress_bps=8e6, ingress_bps=8e6, slots=()))
    settings = PoolSettings(dispatch_lead_s=0.0, plan_results=True)
    pool = SimulatedPool(catalogue, hosts, settings=settings, delays=NO_DELAY)
    outcome = pool.run_batch(batch(["grow"] * 4, input_bytes=100_000, requesters=("tenant",)), Ect())
    assert {(job.state, job.result_bytes) for job in outcome.jobs} == {(JobState.COMPLETED, 400_000)}
    back_s = max(job.ended_at for job in outcome.jobs)
    assert back_s == pytest.approx(outcome.batch.planned_completion_s, abs=1e-5)
    # Four results of 0.4 s leave by one link, which the last of two jobs on a slot cannot leave free.
    assert back_s > outcome.makespan_s + 0.39


def test_commands_do_not_overtake_those_that_were_sent_while_their_host_was_slow(make_pool):
    pool = make_pool(settings=NO_LEAD)
    agent, executed = pool.agents["node-1"], []
    execute = agent.execute

    def noted(shard, epoch, commands):
        executed.extend(command.action.job for command in commands if isinstance(command.action, AssignJob))
        return execute(shard, epoch, commands)

    agent.execute = noted
    pool.slow_host("node-1", 5.0)
    pool.at(1.0, lambda: pool.slow_host("node-1", 0.0))
    pool.submit_at(0.5, batch(["aes"], uuid="first"))
    pool.submit_at(2.0, batch(["aes"], uuid="second"))
    pool.run(Ect())
    assert executed == ["first.0", "second.0"]
