import numpy as np
import pytest

from fpga_pool.core.makespan.residual import Pieces, Residual, as_soon_as_possible, just_in_time


def piece(begin_s, end_s, bps):
    return Pieces(np.array([begin_s]), np.array([end_s]), np.array([bps]))


@pytest.fixture
def residual():
    """Return one requester of 10 b/s and two responders of 8 b/s; 6 b/s go to responder 0 from 1 to 3 s."""
    network = Residual(np.array([10.0]), np.array([8.0, 8.0]))
    network.take(0, 0, piece(1.0, 3.0, 6.0))
    return network


def lists(pieces):
    return [column.tolist() for column in pieces]


def test_a_pair_has_what_both_links_have_left(residual):
    assert lists(residual.between(0, 0, 0.0)) == [[0.0, 1.0, 3.0], [8.0, 2.0, 8.0]]
    assert lists(residual.between(0, 1, 2.0)) == [[2.0, 3.0], [4.0, 8.0]]


def test_least_is_what_is_left_at_all_later_times(residual):
    assert [limits.tolist() for limits in residual.least(0.0)] == [[4.0], [2.0, 8.0]]
    assert [limits.tolist() for limits in residual.least(3.0)] == [[10.0], [8.0, 8.0]]
    assert residual.busy_until_s == 3.0


def test_fills_all_there_is_as_soon_as_possible(residual):
    # 8 bits in the first second, 4 in the next two, then 4 more at 8 b/s.
    found = as_soon_as_possible(residual.between(0, 0, 0.0), 16.0)
    assert lists(found) == [[0.0, 1.0, 3.0], [1.0, 3.0, 3.5], [8.0, 2.0, 8.0]]


def test_fills_the_same_share_of_all_to_end_in_time(residual):
    # 8 + 4 bits could be sent by 3 s; half of that is enough.
    found = just_in_time(residual.between(0, 0, 0.0), 6.0, 3.0)
    assert lists(found) == [[0.0, 1.0], [1.0, 3.0], [4.0, 1.0]]


def test_there_may_be_too_little_time(residual):
    assert just_in_time(residual.between(0, 0, 0.0), 13.0, 3.0) is None
    assert just_in_time(residual.between(0, 0, 5.0), 1.0, 5.0) is None


def test_waits_for_a_link_that_is_full():
    network = Residual(np.array([4.0]), np.array([4.0]))
    network.take(0, 0, piece(0.0, 2.0, 4.0))
    assert lists(as_soon_as_possible(network.between(0, 0, 0.0), 4.0)) == [[2.0], [3.0], [4.0]]


def test_a_link_without_limit_stays_so():
    network = Residual(np.array([np.inf]), np.array([4.0]))
    network.take(0, 0, piece(0.0, 2.0, 4.0))
    assert network.least(0.0)[0].tolist() == [np.inf]


def test_a_late_small_transfer_carries_its_bits_although_the_clock_is_coarse():
    network = Residual(np.array([1e11]), np.array([1e11]))
    found = as_soon_as_possible(network.between(0, 0, 1e6), 8.0)
    assert float(np.sum((found.end_s - found.begin_s) * found.bps)) == pytest.approx(8.0, rel=1e-12)
