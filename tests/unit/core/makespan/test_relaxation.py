import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.makespan.relaxation import bisection, one_shot


def rng():
    return np.random.default_rng(0)


@st.composite
def instances(draw, most_slots=4):
    """Draw up to 6 jobs, with some impossible pairs and with accelerators that are ready at different times."""
    jobs, slots = draw(st.integers(1, 6)), draw(st.integers(1, most_slots))
    length_s = st.one_of(st.integers(1, 9).map(float), st.floats(0.01, 10.0), st.just(np.inf))
    seconds = np.array(draw(st.lists(length_s, min_size=jobs * slots, max_size=jobs * slots))).reshape(jobs, slots)
    seconds[~np.isfinite(seconds).any(axis=1), 0] = 1.0
    ready_s = draw(st.lists(st.sampled_from([0.0, 0.5, 3.0, 1000.0]), min_size=slots, max_size=slots))
    return seconds, np.array(ready_s)


def test_splits_a_job_that_both_accelerators_share():
    # Three jobs of 2 s on two accelerators: 3 s each, with one job split in halves.  No pair is longer than that.
    found = one_shot(np.full((3, 2), 2.0), np.zeros(2))
    assert found.seconds == pytest.approx(3.0)
    assert len(found.job) == 4


def test_allows_no_pair_longer_than_the_makespan():
    # Split over both, job 0 would take 10 * 5 / 15 = 3.3 s, but neither alone completes it within T = 3.3 s.  So T = 5.
    assert one_shot(np.array([[10.0, 5.0]]), np.zeros(2)).seconds == pytest.approx(5.0)


def test_an_accelerator_that_gets_ready_later_does_not_count():
    # (1a') for all accelerators would require T of at least 100.
    found = one_shot(np.array([[2.0, 1.0], [2.0, 1.0]]), np.array([0.0, 100.0]))
    assert found.seconds == pytest.approx(4.0)
    assert set(found.slot.tolist()) == {0}


def test_shares_an_accelerator_that_gets_ready_in_between():
    # Four jobs of 1 s; the second accelerator is ready at 1 s: T + (T - 1) = 4.
    assert one_shot(np.ones((4, 2)), np.array([0.0, 1.0])).seconds == pytest.approx(2.5)


def test_the_least_sum_of_shares_may_need_a_pair_that_its_makespan_forbids():
    # Job 0 takes 7 s on accelerator 0 and nowhere else, job 1 takes 1 s there or 8 s on the other.  With all pairs
    # T = 64 / 9 = 7.1 s, which forbids 8 s; without that pair T = 8.  So T = 8, and no split is needed.
    found = one_shot(np.array([[7.0, np.inf], [1.0, 8.0]]), np.zeros(2))
    assert found.seconds == pytest.approx(8.0)


def test_with_time_to_spare_nothing_is_split_or_slower_than_needed():
    # Job 0 alone makes T 9 s.  The others fit on accelerator 1, where each takes 1 s; on accelerator 2 it would be 2 s.
    found = one_shot(np.array([[9.0, np.inf, np.inf], *[[np.inf, 1.0, 2.0]] * 4]), np.zeros(3))
    assert found.seconds == pytest.approx(9.0)
    assert found.slot.tolist() == [0, 1, 1, 1, 1]


def test_jobs_without_time_take_none():
    found = one_shot(np.zeros((3, 2)), np.zeros(2))
    assert found.seconds == 0.0
    assert np.bincount(found.job, found.share).tolist() == [1.0, 1.0, 1.0]


@given(instance=instances())
def test_one_shot_and_bisection_find_the_same_makespan(instance):
    seconds, ready_s = instance
    found, bisected = one_shot(seconds, ready_s), bisection(seconds, ready_s, 1e-5, rng())
    assert found.seconds <= bisected.seconds * (1 + 1e-6)
    assert bisected.seconds <= found.seconds * (1 + 2e-5)


@given(instance=instances())
def test_a_solution_keeps_its_makespan_and_has_few_edges(instance):
    seconds, ready_s = instance
    found = one_shot(seconds, ready_s)
    busy_s = np.bincount(found.slot, found.share * seconds[found.job, found.slot], len(ready_s))
    used = np.unique(found.slot)
    assert (busy_s[used] + ready_s[used] <= found.seconds * (1 + 1e-5)).all()
    assert (seconds[found.job, found.slot] + ready_s[found.slot] <= found.seconds * (1 + 1e-6)).all()
    assert np.bincount(found.job, found.share, len(seconds)) == pytest.approx(1.0, abs=1e-5)
    assert len(found.job) <= sum(seconds.shape)  # Lemma 1


def test_reduced_sets_of_pairs_lose_nothing():
    # 60 x 30 is solved on some of its pairs, and by bisection on all.
    seconds = rng().exponential(1.0, (60, 1)) * rng().uniform(0.8, 1.2, (60, 30))
    for length in (1.0, 6.0):  # determined by the longest job, or by the total work
        stretched = seconds ** (1.0 / length)
        all_pairs = bisection(stretched, np.zeros(30), 1e-6, rng()).seconds
        assert one_shot(stretched, np.zeros(30)).seconds == pytest.approx(all_pairs, rel=1e-5)
