"""Small batches that wait at the same time are planned together, each behind the earlier ones."""

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.batch import planning
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.batch.planning import TOGETHER
from support.simulated import QUICK

LARGE_BYTES = 100_000


class Fails:
    """A policy that fails for every problem with a job of `flow`."""

    name = "fails"

    def __init__(self, flow):
        self._ect, self._flow = load_policy("batch", "ect"), flow

    def decide(self, problem, state, now_s, rng):
        if (problem.function == self._flow).any():
            raise ValueError("no flow")
        return self._ect.decide(problem, state, now_s, rng)


@pytest.fixture
def cycle_of(pool):
    """Return a function that makes the planning cycle of a policy."""

    def make(policy):
        family = BatchFamily(pool.catalogue, pool.settings, lambda _: policy, policy.name, lambda _: True)
        return Cycle(
            family, reading=pool.tx, transactions=pool.tx, dispatch=lambda: None, clock=lambda: pool.now_s,
            timer=lambda: 0.0, rng=np.random.default_rng(0),
        )  # fmt: skip

    return make


def waiting(pool):
    with pool.tx() as tx:
        return list(tx.pending_batches())


PROVING = {"exact"}


@pytest.mark.parametrize("name", sorted(set(policy_names("batch")) - PROVING))
def test_one_cycle_places_them_all_in_the_order_of_their_age(pool, cycle_of, name):
    batches = []
    for _ in range(5):
        batches.append(pool.create("flow"))
        pool.now_s += 0.01
    result = cycle_of(load_policy("batch", name)).run()
    assert result.failures == ()
    assert len(result.outcome.placed) == 5
    # There is one slot for flow.
    jobs = [pool.job(f"{batch}.0") for batch in batches]
    assert [job.order for job in jobs] == [0, 1, 2, 3, 4]
    ends_s = [job.end_s for job in jobs]
    assert ends_s == sorted(ends_s)
    for batch, job in zip(map(pool.batch, batches), jobs, strict=True):
        # Each batch is promised its own end.  Its bound ignores the other batches, which may end sooner.
        assert batch.planned_makespan_s == pytest.approx(job.end_s)
        assert batch.lower_bound_s == pytest.approx(4.001)


def test_they_are_as_soon_complete_as_one_after_the_other(pool, cycle_of):
    policy = QUICK
    wanted = [("aes", "sha256"), ("flow",), ("aes", "aes", "sha256"), ("sha256",)]
    together = [pool.create(*functions) for functions in wanted]
    assert len(cycle_of(policy).run().outcome.placed) == 7
    assert waiting(pool) == []
    last_s = max(pool.batch(batch).planned_makespan_s for batch in together)
    for batch in together:
        pool.cancel(batch)
    pool.now_s += 100.0
    apart = []
    for functions in wanted:
        apart.append(pool.create(*functions))
        cycle_of(policy).run()
    assert last_s <= max(pool.batch(batch).planned_makespan_s for batch in apart) + 1e-6


def test_a_batch_whose_inputs_need_rates_is_planned_by_itself(pool, cycle_of):
    pool.create("aes")
    large, later = pool.create("aes", input_bytes=LARGE_BYTES), pool.create("aes")
    cycle = cycle_of(load_policy("batch", "makespan"))
    cycle.run()
    assert waiting(pool) == [large, later]
    cycle.run()
    assert waiting(pool) == [later]


def test_no_more_jobs_are_planned_together_than_the_limit(pool, cycle_of):
    per_batch = pool.settings.max_batch_jobs
    batches = [pool.create(*["aes"] * per_batch) for _ in range(TOGETHER // per_batch + 1)]
    cycle_of(load_policy("batch", "ect")).run()
    assert waiting(pool) == batches[TOGETHER // per_batch :]


def test_batches_of_another_policy_are_not_planned_with_the_oldest(pool, cycle_of):
    pool.create("aes", policy="sjf")
    other = pool.create("aes", policy="ljf")
    pool.create("aes", policy="sjf")
    cycle_of(load_policy("batch", "sjf")).run()
    assert waiting(pool)[0] == other
    assert len(waiting(pool)) == 2


def test_a_cycle_that_has_placed_all_that_waited_is_followed_by_none(pool, cycle_of):
    pool.create("aes")
    pool.create("sha256")
    assert not cycle_of(load_policy("batch", "makespan")).run().again
    pool.create("aes")
    pool.create("aes", policy="sjf")
    assert cycle_of(load_policy("batch", "makespan")).run().again


@pytest.mark.parametrize("name", sorted(PROVING))
def test_a_policy_that_proves_each_plan_gets_one_batch_at_a_time(pool, cycle_of, name):
    pool.create("aes")
    other = pool.create("aes")
    result = cycle_of(load_policy("batch", name)).run()
    assert result.failures == ()
    assert waiting(pool) == [other]


def test_a_batch_that_is_too_much_for_its_policy_holds_up_no_other(pool, cycle_of):
    flow = sorted(pool.catalogue.functions).index("flow")
    before, bad, after = pool.create("aes"), pool.create("flow"), pool.create("sha256")
    cycle = cycle_of(Fails(flow))
    first = cycle.run()
    assert [failure.message for failure in first.failures] == [
        f"batches {before}, {bad}, {after}: policy fails failed; its batches are planned separately"
    ]
    assert first.again
    results = [cycle.run() for _ in range(3)]
    assert waiting(pool) == [bad]
    assert [pool.job(f"{batch}.0").state for batch in (before, after)] == [JobState.WAITING_INPUT] * 2
    assert [failure.message for result in results for failure in result.failures] == [
        f"batch {bad}: policy fails failed; next try in 60 s"
    ]


def test_the_bound_of_batches_that_are_alike_is_proven_once(pool, cycle_of, monkeypatch):
    proven = []
    prove = planning.simple_bound_s
    monkeypatch.setattr(planning, "simple_bound_s", lambda problem: proven.append(problem.jobs) or prove(problem))
    batches = [pool.create(*functions) for functions in (["flow"], ["aes"], ["flow"], ["flow", "flow"])]
    cycle_of(load_policy("batch", "ect")).run()
    assert proven == [1, 1, 2]
    assert pool.batch(batches[0]).lower_bound_s == pool.batch(batches[2]).lower_bound_s
