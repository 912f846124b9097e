import numpy as np
import pytest

from fpga_pool.core.makespan import compiled, polishing
from fpga_pool.core.makespan.polishing import Polisher
from fpga_pool.core.types import BatchProblem


@pytest.fixture
def kernels():
    module = compiled.polish_kernels()
    if module is None:
        pytest.skip("numba is not installed")
    return module


def two_slots(seconds, megabits, requester, egress_mbps, ingress_mbps):
    """Return a problem of one responder with two slots."""
    return BatchProblem(
        seconds=seconds, input_bytes=np.array(megabits) * 125_000, requester=requester,
        egress_bps=np.array(egress_mbps) * 1e6, responder=[0, 0], ingress_bps=[ingress_mbps * 1e6],
    )  # fmt: skip


def test_a_responder_alone_receives_what_its_requesters_can_send(kernels):
    # Backwards: slot 0 computes job 0 until 1 s and job 1 until 3 s, slot 1 computes job 2 until 2 s. From 1 s on job 0
    # (200 Mb at 100 Mbps) is sent until 3 s. Job 2, of the same requester with more to send, shares its 100 Mbps: it
    # ends after both, at 1 + (200 + 100) / 100 = 4 s. Job 1 (150 Mb) has what ingress leaves, 50 Mbps, from 3 s
    # to 4 s, then its own 100 Mbps: 4 + (150 - 50) / 100 = 5 s.
    seconds = [[1.0, 9.0], [2.0, 9.0], [9.0, 2.0]]
    problem = two_slots(seconds, [200, 150, 100], [0, 1, 0], [100, 100], 150)
    placed = Polisher(kernels, problem).start(np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert placed.queues.release_s == pytest.approx([1.0, 3.0, 2.0])
    assert placed.queues.load_s == pytest.approx([3.0, 2.0])
    # Requester 0: 1 + 3 s; requester 1: 3 + 1.5 s; the responder 5 s.
    assert placed.queues.link_end_s == pytest.approx([4.0, 4.5, 5.0])
    assert placed.estimate_s == pytest.approx(5.0)


def test_polishing_shortens_a_poor_placement_and_keeps_its_books(kernels):
    rng = np.random.default_rng(3)
    problem = BatchProblem(
        seconds=rng.uniform(0.5, 1.5, (60, 6)), input_bytes=rng.integers(1, 10**8, 60), requester=np.arange(60) % 8,
        egress_bps=[1e9] * 8, responder=[0, 0, 0, 1, 1, 1], ingress_bps=[1e9, 2e9],
    )  # fmt: skip
    polisher = Polisher(kernels, problem)
    placed = polisher.start(np.zeros(60, np.int64), np.arange(60))
    before_s = placed.estimate_s
    was = placed.copy()
    polisher.polish(placed, 0.5 * before_s, 2000, np.array([7], np.uint64))
    assert placed.estimate_s < 0.7 * before_s
    assert was.estimate_s == before_s
    queues = placed.queues
    queued = [queues.queue[slot, : queues.queued[slot]] for slot in range(6)]
    assert sorted(np.concatenate(queued).tolist()) == list(range(60))
    for slot, jobs in enumerate(queued):
        assert (queues.accelerator[jobs] == slot).all()
        assert queues.release_s[jobs] == pytest.approx(np.cumsum(problem.seconds[jobs, slot]))


def test_changes_look_among_the_slots_on_which_a_job_is_quickest(monkeypatch):
    # In blocks of two rows, the last one alone; of three columns the two least.
    monkeypatch.setattr(polishing, "_ROWS", 2)
    quick = polishing._quickest(np.array([[3.0, 1.0, 2.0], [1.0, np.inf, 2.0], [5.0, 4.0, 6.0]]), 2)
    assert np.sort(quick, axis=1).tolist() == [[1, 2], [0, 2], [0, 1]]
