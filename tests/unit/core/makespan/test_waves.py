import numpy as np
import pytest

from fpga_pool.core.makespan.paper.ncjm import Waves, WavesParams
from fpga_pool.core.types import BatchProblem

SECOND = 125_000_000


def plan(seconds, input_bytes, **params):
    """Plan for one requester and one responder with one accelerator, 1 Gbps."""
    problem = BatchProblem(
        seconds=seconds, input_bytes=input_bytes, requester=[0] * len(seconds), egress_bps=[1e9], responder=[0],
        ingress_bps=[1e9],
    )  # fmt: skip
    return Waves(WavesParams(**params)).decide(problem, None, 0.0, np.random.default_rng(0))


def test_computation_comes_first_and_transfers_move_meanwhile():
    # Job 1 computes 0..2 while the input of job 0 moves 0..1; job 0 computes 2..2.1.
    found = plan([[0.1], [2.0]], [SECOND, 0])
    assert found.start_s == pytest.approx([2.0, 0.0])
    assert found.segment_end_s == pytest.approx([1.0])


def test_jobs_of_both_kinds_come_in_between():
    # Job 1 is sent 0..2 at half of the link's rate and computes 2..3.  Job 0 uses the other half until 2 s, and the
    # whole link until 3 s.
    found = plan([[0.0], [1.0], [2.0]], [2 * SECOND, SECOND, 0])
    assert np.argsort(found.start_s).tolist() == [2, 1, 0]
    assert found.segment_end_s[found.segment_job == 1].max() <= 2.0 + 1e-9
    assert found.makespan_s == pytest.approx(3.0)


def test_what_is_negligible_can_be_said():
    # 0.5 s against 1 s is neglected only if a half is negligible; then shortest first puts it behind the job of 0.9 s.
    assert plan([[1.0], [0.9]], [SECOND // 2, 0], negligible=0.5).makespan_s == pytest.approx(1.9)


def test_refuses_wrong_parameters():
    with pytest.raises(ValueError, match="negligible"):
        WavesParams(negligible=1.5)
