"""What the scheduler learns of online jobs, on a real database."""

import numpy as np
import pytest

from fpga_pool.core.benefit.demand import Demand
from fpga_pool.services.scheduler.online import OnlinePlanner

POLICY = "benefit_plus"


@pytest.fixture
def quiet(bench):
    """A scheduler that owns a shard, and looks at online jobs only when a test says so."""
    bench.start()
    bench.service.ownership._owned["default"]._onlining.stop()
    return bench


@pytest.fixture
def new_planner(quiet):
    def build():
        service = quiet.service
        return OnlinePlanner(
            lambda: service.store.reading("default"),
            lambda: service.store.transaction("default", "me", 1),
            quiet.catalogue,
            service.settings.pool,
            service.online,
            quiet.clock,
            np.random.default_rng(0),
        )

    return build


def test_a_scheduler_that_takes_over_knows_what_was_asked_for_and_what_it_gained(quiet, new_planner):
    agent, before = quiet.host(), new_planner()
    batches = []
    for function in ("sha256", "aes", "sha256"):
        batches.append(quiet.create(agent, function, policy=POLICY))
        before.step()
    quiet.report(quiet.jobs(batches[0])[0], "staged", "started", "finished")
    before.step()
    # The planned job is none of its business, and nobody has looked at the last one yet.
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
    assert after.demand.rates(now_s) == pytest.approx(counted.rates(now_s))
    number = names.index("sha256")
    assert after.demand.expected(number, "p") == before.demand.expected(number, "p")
    assert after.demand.expected(number, "p") != quiet.catalogue.functions["sha256"].speedup
