"""Batches whose functions have to be loaded, as in every pool."""

import numpy as np
import pytest

from fpga_pool.core.makespan import Ect, Makespan
from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.makespan.search.best import MakespanParams, plan
from fpga_pool.core.makespan.search.exact import Exact
from fpga_pool.core.types import BatchProblem

SLOTS_OF_A_CARD = 4


def on_cards(seed, jobs=40, cards=3):
    """Return jobs of three functions on cards of four slots, one of them large, which load one after the other."""
    rng = np.random.default_rng(seed)
    slots = np.arange(cards * SLOTS_OF_A_CARD)
    is_large = slots % SLOTS_OF_A_CARD == SLOTS_OF_A_CARD - 1
    function, input_bytes = rng.integers(3, size=jobs), rng.exponential(2e6, jobs).astype(int) + 1
    seconds = np.repeat((np.array([0.4e-6, 0.2e-6, 0.1e-6])[function] * input_bytes)[:, None], len(slots), 1)
    seconds[np.ix_(function == 0, ~is_large)] = np.inf
    return BatchProblem(
        seconds=seconds, input_bytes=input_bytes, requester=rng.integers(2, size=jobs), egress_bps=[1e9] * 2,
        responder=slots // SLOTS_OF_A_CARD, ingress_bps=[400e6] * cards, function=function,
        loaded=rng.integers(-1, 3, len(slots)), load_s=np.where(is_large, 0.4, 0.2), port=slots // SLOTS_OF_A_CARD,
        group=np.sort(rng.integers(2, size=jobs)) if seed % 2 else [], head_start_s=0.5,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pairs():
    """Return (plan of `ect`, plan of `makespan` with little effort) for some problems."""
    found = []
    for seed in range(8):
        problem, rng = on_cards(seed), np.random.default_rng(0)
        found.append((Ect().decide(problem, None, 0.0, rng), plan(problem, MakespanParams(effort=100), rng)))
    return found


@pytest.mark.long
def test_the_search_shortens_what_one_pass_finds(pairs):
    ratios = [ours.makespan_s / ect.makespan_s for ect, ours in pairs]
    assert max(ratios) <= 1.0
    assert np.mean(ratios) < 0.95


@pytest.mark.long  # with little effort, test_plans_are_valid
def test_bounds_hold(pairs):
    assert all(ours.lower_bound_s <= ours.makespan_s for _, ours in pairs)


def test_plans_are_valid(verdict):
    for seed in range(4):
        problem = on_cards(seed)
        found = plan(problem, MakespanParams(effort=20))
        assert found.lower_bound_s <= found.makespan_s
        said = verdict(problem, found)
        # The checker does not know that slots may load before time 0.
        assert [fault for fault in said["faults"] if "loaded" not in fault] == []


def test_results_are_the_same_for_the_same_effort():
    first, second = (plan(on_cards(1), MakespanParams(effort=20), np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first.start_s, second.start_s)


def test_seconds_limit_the_search():
    now_s = iter(np.arange(0.0, 1e6, 0.25).tolist())
    found = plan(on_cards(1), MakespanParams(time_limit_s=5.0), clock=lambda: next(now_s))
    assert found.makespan_s > 0.0
    assert next(now_s) < 20.0


def test_the_reference_lets_loads_take_turns_and_claims_no_more_than_a_bound():
    problem, rng = on_cards(2, jobs=3, cards=1), np.random.default_rng(0)
    found = Exact().decide(problem, None, 0.0, rng)
    assert found.lower_bound_s <= found.makespan_s <= plan(problem, rng=rng).makespan_s
    arrived_s = np.zeros(problem.jobs)
    np.maximum.at(arrived_s, found.segment_job, found.segment_end_s)
    order = np.argsort(found.start_s, kind="stable")
    assert found.start_s == pytest.approx(execute(problem, found.accelerator, order, arrived_s))


def test_sparing_plans_are_searched_too():
    problem = on_cards(3)
    sparing = Makespan().sparing(0.05).decide(problem, None, 0.0, np.random.default_rng(0))
    assert sparing.makespan_s < 0.97 * Ect().decide(problem, None, 0.0, np.random.default_rng(0)).makespan_s
