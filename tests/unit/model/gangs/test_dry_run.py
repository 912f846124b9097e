"""A dry run of a gang predicts what then happens to it, in any state of the pool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.objects.gangs import GangState, Process
from fpga_pool.model.rules.gang.admission import admit_gang
from fpga_pool.model.rules.gang.dry_run import plan_gang
from support.dry_runs import context_of

TIERS = {GangState.QUEUED: None, GangState.BACKGROUND: Tier.BACKGROUND, GangState.FOREGROUND: Tier.FOREGROUND}


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    return make_catalogue({"aes": (0.0, "small", "large")}, slots=["small", "large"], load_s=1.0)


@pytest.fixture(scope="module")
def dry_run(catalogue):
    """Return a function that plans a gang on a pool."""

    def plan(pool, processes=1, runtime_s=100.0, cpu_usage=0.5):
        request = GangRequest(
            uuid="planned", project_id="p", user_id="u", name="", processes=processes, runtime_s=runtime_s,
            cpu_usage=cpu_usage,
        )  # fmt: skip
        with pool.tx() as tx:
            gang = admit_gang(tx, request, pool.now_s, pool.policy.last_runs)
        return plan_gang(gang, context_of(pool.tx, pool.now_s, catalogue, pool.settings, gangs=pool.policy))

    return plan


def agrees(pool, plan, **asked):
    """Create the planned gang, run the scheduler once, and compare."""
    uuid = pool.create(**asked)
    pool.plan()
    gang = pool.gang(uuid)
    placed = sorted((one for one in pool.store.all(Process) if one.gang_uuid == uuid), key=lambda one: one.index)
    assert plan.tier == TIERS[gang.state]
    assert [(one.processor, one.tier) for one in plan.process_list] == [(one.processor, one.tier) for one in placed]
    assert plan.trial is (gang.trial_ends_at is not None)
    said = pool.outlook(uuid)
    assert plan.pending_reason == ("" if said is None else said.reason)
    expected_at = pool.now_s if gang.state is GangState.FOREGROUND else said.expected_at
    assert plan.expected_at == (None if expected_at is None else pytest.approx(expected_at, abs=1.0))


@given(
    before=st.lists(
        st.tuples(
            st.integers(1, 4), st.sampled_from([20.0, 100.0, 5000.0]), st.sampled_from([0.2, 0.9]), st.booleans()
        ),
        max_size=8,
    ),
    processes=st.integers(1, 4),
    cpu_usage=st.sampled_from([0.2, 0.9]),
    policy=st.sampled_from(["measy_plus", "measy_plus:trial_s=20,trial_share=1", "measy", "keasy", "easy"]),
)
def test_the_plan_of_a_gang_comes_true(new_gang_pool, dry_run, before, processes, cpu_usage, policy):
    pool = new_gang_pool(policy=policy)
    for width, runtime_s, usage, looks in before:
        pool.create(width, runtime_s=runtime_s, cpu_usage=usage)
        if looks:
            pool.settle()
            pool.now_s += 7.0
    pool.settle()
    asked = {"processes": processes, "runtime_s": 50.0, "cpu_usage": cpu_usage}
    stored = list(pool.store.all(Process))
    plan = dry_run(pool, **asked)
    assert list(pool.store.all(Process)) == stored
    agrees(pool, plan, **asked)


def test_a_trial_that_would_begin_is_told(new_gang_pool, dry_run):
    pool = new_gang_pool({"h0": 1, "h1": 1}, policy="measy_plus:trial_s=60")
    pool.create(2, runtime_s=10_000.0)
    pool.settle()
    plan = dry_run(pool, runtime_s=500.0)
    assert (plan.tier, plan.trial) == (Tier.BACKGROUND, True)
    agrees(pool, plan, runtime_s=500.0)


def test_trials_that_are_over_end_before_a_gang_is_planned(new_gang_pool, dry_run):
    pool = new_gang_pool({"h0": 1, "h1": 1}, policy="measy_plus:trial_s=60")
    pool.create(2, runtime_s=10_000.0)
    pool.settle()
    pool.create(runtime_s=500.0)
    pool.settle()
    pool.now_s += 61.0  # no planning cycle has run since
    plan = dry_run(pool, runtime_s=500.0)
    assert (plan.tier, plan.ahead) == (Tier.BACKGROUND, 1)
    agrees(pool, plan, runtime_s=500.0)


def test_a_policy_that_fails_is_named(new_gang_pool, dry_run, monkeypatch):
    pool = new_gang_pool()
    monkeypatch.setattr(type(pool.policy), "decide", lambda *_: 1 / 0)
    plan = dry_run(pool)
    assert (plan.tier, plan.process_list) == (None, ())
    assert plan.pending_reason.startswith("gang policy measy_plus failed; ")
