"""The bandwidth that transfers under way leave on their links."""

import numpy as np
import pytest

from fpga_pool.core.makespan.residual import Piece, Pieces, Residual, ResidualLinks, as_soon_as_possible


def residual(egress_bps, ingress_bps, pieces):
    """Return the residual links of pieces (requester, responder, begin, end, rate)."""
    columns = np.array(pieces, float).reshape(-1, 5).T
    ends = columns[:2].astype(int)
    return ResidualLinks(np.array(egress_bps, float), np.array(ingress_bps, float), *ends, *columns[2:])


def test_a_transfer_takes_what_each_moment_leaves_of_both_links():
    # 8 b/s out, 4 b/s in.  Another sender takes 3 b/s of the ingress until 2 s: 1 b/s for 2 s, then 4 b/s for 2.5 s.
    found = residual([8, 8], [4], [(1, 0, 0, 2, 3)])
    assert found.send(0, 0, 0.0, 12.0) == [Piece(0.0, 2.0, 1.0), Piece(2.0, 4.5, 4.0)]
    # The bandwidth that it used is gone, so the next transfer begins when it has ended.
    assert found.send(0, 0, 0.0, 4.0) == [Piece(4.5, 5.5, 4.0)]


def test_a_full_link_is_waited_for_and_one_without_limit_is_no_hindrance():
    found = residual([np.inf], [4], [(0, 0, 0, 2, 4)])
    assert found.left_s(0, 1.0, 8.0) == 1.0
    assert found.arrival_s(0, 0, 1.0, 8.0) == 4.0


def test_an_arrival_that_is_not_early_enough_is_not_worked_out():
    found = residual([4], [8], [])
    assert found.arrival_s(0, 0, 0.0, 8.0, before_s=2.5) == 2.0
    assert found.arrival_s(0, 0, 0.0, 8.0, before_s=2.0) == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_many_transfers_one_after_the_other_are_those_of_the_array_form(seed):
    rng = np.random.default_rng(seed)
    egress_bps, ingress_bps = rng.uniform(1, 5, 3), rng.uniform(1, 9, 2)
    slow, quick = Residual(egress_bps, ingress_bps), residual(egress_bps, ingress_bps, [])
    taken = []
    for number in range(40):
        requester, responder = int(rng.integers(3)), int(rng.integers(2))
        from_s, bits = float(rng.choice([0.0, 1.0, rng.uniform(0, 20)])), float(rng.uniform(1, 20))
        expected = as_soon_as_possible(slow.between(requester, responder, from_s), bits)
        assert quick.arrival_s(requester, responder, from_s, bits) == pytest.approx(expected.end_s[-1])
        pieces = Pieces(*map(np.array, zip(*quick.send(requester, responder, from_s, bits), strict=True)))
        assert pieces.bps @ (pieces.end_s - pieces.begin_s) == pytest.approx(bits)
        slow.take(requester, responder, pieces)
        taken += [(requester, responder, *piece) for piece in zip(*pieces, strict=True)]
        if number == 20:  # as if all pieces so far were under way
            quick = residual(egress_bps, ingress_bps, taken)
