"""What the scheduler learns from online jobs, on a real database."""

from dataclasses import replace

import pytest

from fpga_pool.core.benefit.occupancy import Demand
from fpga_pool.model.messages.agents import LoadFunction
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.online import family
from fpga_pool.model.rules.online.family import REST_S, OnlineFamily
from fpga_pool.model.values import changed

from .conftest import StoppedPlanner

POLICY = "benefit_plus"


@pytest.fixture
def quiet(bench):
    """Return a scheduler that owns a shard, and plans online jobs only when a test says so."""
    bench.start()
    bench.service.ownership._owned["default"].planning["online"].stop()
    return bench


@pytest.fixture
def new_planner(quiet):
    def build(*, from_start=False, clock=quiet.clock):
        service = quiet.service
        rule = replace(service.policies.online, from_start=from_start)
        return StoppedPlanner(quiet, OnlineFamily(quiet.catalogue, service.settings.pool, rule), clock)

    return build


def test_a_scheduler_that_takes_over_knows_what_was_asked_for_and_what_it_gained(quiet, new_planner):
    agent, before = quiet.host(), new_planner()
    batches = []
    for function in ("sha256", "aes", "sha256"):
        batches.append(quiet.create(agent, function, policy=POLICY))
        before.step()
    quiet.report(quiet.jobs(batches[0])[0], "staged", "started", "finished")
    before.step()
    # The job with another policy is irrelevant, and the last online job has not been planned yet.
    quiet.create(agent, "sha256", policy="ect")
    batches.append(quiet.create(agent, "sha256", policy=POLICY))
    after = new_planner()
    after.step()
    after.step()
    names = sorted(quiet.catalogue.functions)
    counted = Demand([1.0] * len(names))
    for batch in batches:
        [job] = quiet.jobs(batch)
        counted.arrived(names.index(job.function), 1.0, 1.0, job.created_at)
    now_s = quiet.clock()
    assert after.family.demand.rates(now_s) == pytest.approx(counted.rates(now_s))
    number = names.index("sha256")
    assert after.family.demand.expected(number, "p") == before.family.demand.expected(number, "p")
    assert after.family.demand.expected(number, "p") != quiet.catalogue.functions["sha256"].speedup


def ahead(quiet, planner):
    """Make a planning step; return the slots that were ever told to load ahead of jobs. No agent accepts commands."""
    planner.step()
    return [command.slot for command in quiet.waiting() if isinstance(command.action, LoadFunction)]


def test_before_the_first_online_job_nothing_is_loaded(quiet, new_planner):
    quiet.create(quiet.host(served=False), "sha256", policy="ect")
    assert ahead(quiet, new_planner()) == []


def test_where_all_work_is_online_slots_load_before_the_first_job(quiet, new_planner):
    quiet.host(served=False)
    # One at a time, because the slots share the card's configuration port.
    assert len(ahead(quiet, new_planner(from_start=True))) == 1


def loaded(agent, at):
    """Return a heartbeat in which all slots of the agent hold a function."""
    beat = agent.heartbeat(at)
    return changed(beat, slots=[changed(slot, state=SlotState.READY, function="sha256") for slot in beat.slots])


def test_a_pool_without_jobs_where_nothing_is_to_be_loaded_is_looked_at_now_and_then(
    quiet, new_agent, new_planner, jumping_clock, monkeypatch
):
    agent = new_agent()
    quiet.api.heartbeat(loaded(agent, quiet.clock()))
    planner = new_planner(from_start=True, clock=jumping_clock)
    looks, seen = [], family.online_view
    monkeypatch.setattr(family, "online_view", lambda *args, **named: looks.append(args) or seen(*args, **named))
    for _ in range(5):
        planner.step()
        quiet.api.heartbeat(loaded(agent, quiet.clock()))  # the database changes, the slots do not
    assert len(looks) == 1
    jumping_clock.ahead_s += REST_S
    planner.step()
    assert len(looks) == 2


def test_a_slot_is_told_once_though_its_agent_does_not_answer(quiet, new_planner):
    quiet.host(served=False)
    planner = new_planner(from_start=True)
    told = [ahead(quiet, planner) for _ in range(4)]
    assert [len(slots) for slots in told] == [1, 1, 1, 1]
