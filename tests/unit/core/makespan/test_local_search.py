import numpy as np
import pytest

from fpga_pool.core.makespan.kernels import joint
from fpga_pool.core.makespan.kernels import local_search as kernels
from fpga_pool.core.makespan.search import local_search
from fpga_pool.core.makespan.search.local_search import LocalSearch
from fpga_pool.core.types import BatchProblem


def two_slots(seconds, megabits, requester, egress_mbps, ingress_mbps):
    """Return a problem of one responder with two slots."""
    return BatchProblem(
        seconds=seconds, input_bytes=np.array(megabits) * 125_000, requester=requester,
        egress_bps=np.array(egress_mbps) * 1e6, responder=[0, 0], ingress_bps=[ingress_mbps * 1e6],
    )  # fmt: skip


def test_a_responder_alone_receives_what_its_requesters_can_send():
    # In reversed time: slot 0 computes job 0 until 1 s and job 1 until 3 s, slot 1 computes job 2 until 2 s.  From 1 s
    # on job 0 (200 Mb at 100 Mbps) is sent until 3 s.  Job 2 of the same requester begins then.  It precedes job 1,
    # since its requester has more to send, and ends at 1 + (200 + 100) / 100 = 4 s.  Job 1 (150 Mb) has the rest of the
    # ingress, 50 Mbps, from 3 s to 4 s, then its own 100 Mbps: 4 + (150 - 50) / 100 = 5 s.
    seconds = [[1.0, 9.0], [2.0, 9.0], [9.0, 2.0]]
    problem = two_slots(seconds, [200, 150, 100], [0, 1, 0], [100, 100], 150)
    placed = LocalSearch(problem).start(np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert placed.queues.release_s == pytest.approx([1.0, 3.0, 2.0])
    assert placed.queues.start_s == pytest.approx([1.0, 3.0, 3.0])
    assert placed.queues.load_s == pytest.approx([3.0, 2.0])
    # Requester 0: 1 + 3 s; requester 1: 3 + 1.5 s; the responder 5 s.
    assert placed.queues.link_end_s == pytest.approx([4.0, 4.5, 5.0])
    assert placed.estimate_s == pytest.approx(5.0)


def test_a_responder_waits_for_what_its_requester_sends_to_another():
    # Job 0 (200 Mb at 100 Mbps) is computed on responder 0 at 1 s and sent until 3 s.  Job 1, computed on responder 1
    # at 2 s, has the same requester and begins to move then: its 100 Mb have arrived at 4 s.
    problem = BatchProblem(
        seconds=[[1.0, 9.0], [9.0, 2.0]], input_bytes=[25_000_000, 12_500_000], requester=[0, 0], egress_bps=[1e8],
        responder=[0, 1], ingress_bps=[1e9, 1e9],
    )  # fmt: skip
    placed = LocalSearch(problem).start(np.array([0, 1]), np.array([0, 1]))
    assert placed.queues.start_s == pytest.approx([1.0, 3.0])
    # The requester, then the responders.
    assert placed.queues.link_end_s == pytest.approx([4.0, 3.0, 4.0])
    # Beyond 3.5 s: the requester and responder 1 by 0.5 s each.
    assert placed.excess_s(3.5) == pytest.approx(1.0)


def test_local_search_shortens_a_poor_placement_and_keeps_its_books():
    rng = np.random.default_rng(3)
    problem = BatchProblem(
        seconds=rng.uniform(0.5, 1.5, (60, 6)), input_bytes=rng.integers(1, 10**8, 60), requester=np.arange(60) % 8,
        egress_bps=[1e9] * 8, responder=[0, 0, 0, 1, 1, 1], ingress_bps=[1e9, 2e9],
    )  # fmt: skip
    local_search = LocalSearch(problem)
    placed = local_search.start(np.zeros(60, np.int64), np.arange(60))
    before_s = placed.estimate_s
    was = placed.copy()
    local_search.local_search(placed, 0.5 * before_s, 2000, np.array([7], np.uint64))
    assert placed.estimate_s < 0.7 * before_s
    assert was.estimate_s == before_s
    queues = placed.queues
    queued = [queues.queue[slot, : queues.queued[slot]] for slot in range(6)]
    assert sorted(np.concatenate(queued).tolist()) == list(range(60))
    for slot, jobs in enumerate(queued):
        assert (queues.accelerator[jobs] == slot).all()
        assert queues.release_s[jobs] == pytest.approx(np.cumsum(problem.seconds[jobs, slot]))
    again = placed.copy()
    kernels.measure(local_search._instance, again.queues)
    assert queues.start_s == pytest.approx(again.queues.start_s)
    assert queues.load_s == pytest.approx(again.queues.load_s)
    assert queues.link_end_s == pytest.approx(again.queues.link_end_s)


def longest_last(seconds, due_s):
    """Return when a slot releases jobs of these seconds and due times."""
    release_s = np.zeros(len(seconds))
    joint.longest_last(np.array(seconds)[:, None], np.zeros(len(seconds), np.int64), np.array(due_s), release_s)
    return release_s.tolist()


def test_a_slot_computes_the_longest_job_last_that_is_not_late_then():
    # At 6 s job 0 or 1 may end, so the longer one does.  At 4 s job 0 or 2 may end, so the longer one does.
    assert longest_last([1.0, 2.0, 3.0], [6.0, 6.0, 4.0]) == [1.0, 6.0, 4.0]


def test_where_all_are_late_the_one_due_last_is_computed_last():
    assert longest_last([1.0, 1.0, 1.0], [0.2, 0.5, 0.1]) == [2.0, 3.0, 1.0]


def test_each_slot_computes_last_what_may_be_released_last_of_all_it_has_left():
    # Small whole numbers, so that many jobs are due together or equally long.
    rng = np.random.default_rng(2)
    seconds = rng.integers(1, 6, (300, 4)).astype(np.float64)
    slot, due_s, release_s = rng.integers(0, 4, 300), rng.integers(0, 250, 300).astype(np.float64), np.zeros(300)
    joint.longest_last(seconds, slot, due_s, release_s)
    for a in range(4):
        left = np.flatnonzero(slot == a)
        while left.size:
            now_s = seconds[left, a].sum()
            (last,) = left[release_s[left] == now_s]
            best = max(zip(np.minimum(due_s[left], now_s), seconds[left, a], strict=True))
            assert (min(due_s[last], now_s), seconds[last, a]) == best
            left = left[left != last]


def test_changes_look_among_the_slots_on_which_a_job_is_quickest(monkeypatch):
    # In blocks of two rows, with the last row alone: the two smallest of three columns.
    monkeypatch.setattr(local_search, "_ROWS", 2)
    quick = local_search._quickest(np.array([[3.0, 1.0, 2.0], [1.0, np.inf, 2.0], [5.0, 4.0, 6.0]]), 2)
    assert np.sort(quick, axis=1).tolist() == [[1, 2], [0, 2], [0, 1]]
