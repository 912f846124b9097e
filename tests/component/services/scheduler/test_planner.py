"""The planning cycle on a real database."""

import math
import threading
from dataclasses import replace

import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.makespan import Ect, Makespan
from fpga_pool.model.objects.pool import Run
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.services.scheduler.planner import Calibrator, sparing
from fpga_pool.store.purge import remove_host, remove_slots

from .conftest import StoppedPlanner


class Broken:
    name = "broken"

    def decide(self, problem, state, now_s, rng):
        raise ZeroDivisionError


@pytest.fixture
def quiet(bench):
    """Return a scheduler that owns a shard, and plans batches only when a test says so."""
    bench.start()
    bench.service.ownership._owned["default"].planning["batch"].stop()
    return bench


@pytest.fixture
def new_planner(quiet):
    def build(policies=lambda name: load_policy("batch", name), clock=None):
        settings = replace(quiet.service.settings.pool, replan_horizon_s=0.0)
        family = BatchFamily(quiet.catalogue, settings, sparing(policies, 0.02), "makespan", lambda name: True)
        return StoppedPlanner(quiet, family, clock)

    return build


@pytest.fixture
def agent(quiet):
    return quiet.host()


@pytest.fixture
def now(quiet):
    """Return the time of a planner, in a list, so that a slow machine makes no job late."""
    return [quiet.clock()]


def test_batches_are_planned_one_at_a_time_oldest_first_each_by_its_policy(quiet, agent, new_planner, now):
    planner = new_planner(clock=lambda: now[0])
    first, second = quiet.create(agent, "sha256", policy="ljf"), quiet.create(agent, "sha256")
    assert planner.step()
    assert (quiet.states(first), quiet.states(second)) == (["WAITING_INPUT"], ["PENDING"])
    assert planner.step()
    assert quiet.states(second) == ["WAITING_INPUT"]
    assert planner.asked == ["ljf", "makespan"]
    assert not planner.step()


def test_what_changes_while_the_policy_decides_is_left_out_of_the_commit(quiet, agent, new_planner):
    class Slow(Ect):
        def decide(self, *arguments):
            quiet.api.cancel_batch("p", batch.uuid)
            return super().decide(*arguments)

    batch = quiet.create(agent, "sha256")
    assert not new_planner(lambda name: Slow()).step()
    assert (quiet.states(batch), quiet.waiting()) == (["CANCELLED"], [])


def test_a_batch_that_its_policy_cannot_plan_does_not_hold_up_the_others_and_is_tried_again(
    quiet, agent, new_planner, now, caplog
):
    broken, sound = quiet.create(agent, "sha256", policy="sjf"), quiet.create(agent, "sha256")
    policies = {"sjf": Broken(), "makespan": Ect()}
    planner = new_planner(lambda name: policies[name], lambda: now[0])
    assert [planner.step() for _ in range(3)] == [True, True, False]
    assert (quiet.states(broken), quiet.states(sound)) == (["PENDING"], ["WAITING_INPUT"])
    assert f"batch {broken.uuid}: policy sjf failed; next try in 60 s" in caplog.text
    policies["sjf"] = Ect()
    now[0] += 50.0
    assert not planner.step()
    now[0] += 11.0
    assert planner.step()
    assert quiet.states(broken) == ["WAITING_INPUT"]


def test_batches_of_a_host_that_was_removed_hold_up_no_others(quiet, agent, new_planner):
    planner, gone = new_planner(), quiet.host()
    removed = quiet.create(gone, "sha256")
    with quiet.store.reading() as tx:
        slots = [slot.name for slot in tx.slots(gone.name)]
    remove_slots(quiet.store, "default", slots)
    remove_host(quiet.store, "default", gone.name)
    other = quiet.create(agent, "sha256", project="other")
    while planner.step():
        pass
    assert (quiet.states(removed), quiet.states(other)) == (["WAITING_INPUT"], ["WAITING_INPUT"])


def test_planners_that_plan_the_same_batch_at_once_place_each_job_once(quiet, agent, new_planner):
    barrier = threading.Barrier(2)

    class Together(Ect):
        def decide(self, *arguments):
            barrier.wait(60)
            return super().decide(*arguments)

    batch = quiet.create(agent, *["sha256"] * 6)
    threads = [threading.Thread(target=new_planner(lambda name: Together()).step) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [job.attempt for job in quiet.jobs(batch)] == [1] * 6


class Around(Makespan):
    """A policy that records the work that it was asked to plan around."""

    def __init__(self, broken=False):
        super().__init__()
        self.asked, self._broken = [], broken

    def sparing(self, share):
        return self

    def replan(self, underway, state, rng):
        self.asked.append(underway)
        if self._broken:
            raise ZeroDivisionError
        return super().replan(underway, state, rng)


@pytest.mark.parametrize("broken", [False, True])
def test_a_batch_that_comes_while_others_run_is_planned_around_them_or_behind_them(
    quiet, agent, new_planner, caplog, broken
):
    policy = Around(broken)
    planner = new_planner(lambda name: policy)
    first = quiet.create(agent, *["sha256"] * 30, input_bytes=10**10)
    assert planner.step()
    assert policy.asked == []
    second = quiet.create(agent, "sha256")
    assert planner.step()
    assert policy.asked[0].problem.jobs == 31
    assert quiet.states(second) == ["WAITING_INPUT"]
    assert quiet.states(first) == ["WAITING_INPUT"] * 30
    assert ("failed to replan around jobs in progress" in caplog.text) == broken


def test_what_is_late_is_planned_again_and_looked_at_again_later(quiet, agent, new_planner, now):
    policy = Around()
    planner = new_planner(lambda name: policy, lambda: now[0])
    quiet.create(agent, *["sha256"] * 30, input_bytes=10**10)
    assert planner.step()
    assert not planner.step()
    now[0] += 5.0
    planner.step()
    assert len(policy.asked) == 1
    assert policy.asked[0].retime
    planner.step()
    assert len(policy.asked) == 1


class Learned(Ect):
    """A policy that remembers how many jobs it has placed, and the last computation time."""

    name = "learned"

    def __init__(self):
        super().__init__()
        self.states = []

    def observe(self, event, state):
        state = state or {"placed": 0, "compute_s": None}
        if event["event"] == "placed":
            return state | {"placed": state["placed"] + 1}
        return state | {"compute_s": event["compute_s"]}

    def decide(self, problem, state, now_s, rng):
        self.states.append(state)
        return super().decide(problem, state, now_s, rng)


def test_a_scheduler_that_takes_over_decides_with_what_the_policy_has_learned(quiet, agent):
    def planner(policy, owner, epoch):
        settings = quiet.service.settings.pool
        family = BatchFamily(quiet.catalogue, settings, lambda name: policy, policy.name, lambda name: True)
        return StoppedPlanner(quiet, family, owner=owner, epoch=epoch)

    before, after, store = Learned(), Learned(), quiet.service.store
    first = quiet.create(agent, "sha256", "sha256")
    assert planner(before, "me", 1).step()
    assert before.states == [None]
    quiet.report(quiet.jobs(first)[0], "staged", "started", "finished")
    quiet.service.stop()
    epoch = store.acquire_shard("default", "another", quiet.clock()).epoch
    quiet.create(agent, "sha256")
    assert planner(after, "another", epoch).step()
    assert after.states == [{"placed": 2, "compute_s": quiet.jobs(first)[0].compute_s}]


def test_runs_that_give_no_model_do_not_stop_the_others_from_being_refitted(quiet, agent, caplog):
    for function, compute_s in (("aes", math.inf), ("sha256", 1.0)):
        batch = quiet.create(agent, function)
        with quiet.service.store.reading() as tx:
            job = tx.batch_jobs(batch.uuid)[0].uuid
        run = Run(
            job=job, attempt=1, function=function, board="fast", input_bytes=10, compute_s=compute_s, finished_at=1.0
        )
        quiet.service.writer("default").run(lambda tx, run=run: tx.record_run(run))
    quiet.service.calibrator.refit()
    assert [fit.function for fit in quiet.service.calibrator.report()] == ["sha256"]
    assert "aes on fast: its runs give no time model" in caplog.text


def test_what_runs_on_one_card_have_shown_is_learned_from_the_database(quiet, agent):
    """aes takes 20 ms beside sha256 and 10 ms alone. sha256 always takes 20 ms."""
    service = quiet.service
    for loop in service._loops:
        loop.stop()  # the loop that refits would do so at any time
    calibrator = service.calibrator
    calibrator.refit()
    assert calibrator.slowdown is None
    for number in range(24):
        batch, together = quiet.create(agent, "aes", "sha256"), number % 2
        with service.store.reading() as tx:
            jobs = tx.batch_jobs(batch.uuid)
        for job, took_s in zip(jobs, (0.01 * (1 + together), 0.02), strict=True):
            ended_at = 100.0 * number + (0.0 if together or job.function == "aes" else 50.0)
            run = Run(
                job=job.uuid, attempt=1, function=job.function, board="fast", input_bytes=job.input_bytes,
                compute_s=took_s, finished_at=ended_at,
            )  # fmt: skip
            slot = f"{agent.name}/c/{'r0' if job.function == 'aes' else 'r1'}"

            def record(tx, job=job, run=run, slot=slot):
                tx.save(replace(tx.job(job.uuid), slot=slot, attempt=1))
                tx.record_run(run)

            service.writer("default").run(record)
    calibrator.refit()
    assert calibrator.slowdown.rate("aes", ("sha256",)) == pytest.approx(0.5, abs=0.1)
    assert calibrator.slowdown.rate("sha256", ("aes",)) == pytest.approx(1.0, abs=0.1)
    # Another process, after a restart or a takeover, learns the same with its first refit.
    other = Calibrator(service.store, quiet.catalogue, quiet.clock)
    other.refit()
    assert other.slowdown._terms == calibrator.slowdown._terms
    assert Calibrator(service.store, quiet.catalogue, quiet.clock).learned()._terms == calibrator.slowdown._terms
    # The policies of pipelines and batches, and Nova's weighers, use it.
    assert service.policies.pipelines._slowdown() is service.policies.slowdown() is calibrator.slowdown
    costs = {(one.function, one.beside): one.cost for one in quiet.api.observations().neighbour_costs}
    assert costs["aes", "sha256"] == pytest.approx(calibrator.slowdown.cost("aes", ("sha256",)), abs=1e-4)
