import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.makespan.paper.cim import pseudo_forest, round_shares
from fpga_pool.core.makespan.relaxation import Relaxed, one_shot


def relaxed(*edges):
    job, slot, share = zip(*edges, strict=True)
    return Relaxed(1.0, np.array(job), np.array(slot), np.array(share, np.float64))


def rounded(*edges):
    found = relaxed(*edges)
    shape = found.job.max() + 1, found.slot.max() + 1
    return round_shares(found, np.ones(shape), np.zeros(shape[1])).tolist()


def test_whole_jobs_stay_where_they_are():
    assert rounded((0, 1, 1.0), (1, 0, 1.0)) == [1, 0]


def test_a_tree_gives_each_job_the_child_with_most_of_it():
    # The root is job 0 with accelerators 0 and 1; below 1 is job 1, with 2 and 3 below it.
    assert rounded((0, 0, 0.4), (0, 1, 0.6), (1, 1, 0.8), (1, 2, 0.15), (1, 3, 0.05)) == [1, 2]


def test_a_cycle_gives_each_job_the_next_accelerator():
    # The cycle is 0 - a0 - 1 - a1 - 0: the jobs go in either direction, never both to one accelerator.
    assert sorted(rounded((0, 0, 0.5), (0, 1, 0.5), (1, 0, 0.5), (1, 1, 0.5))) == [0, 1]


def test_a_job_that_loses_its_edge_to_the_cycle_is_the_root_of_its_tree():
    # A cycle of jobs 0, 1 and accelerators 0, 1.  Job 2 is on accelerator 0 of the cycle and on 2, job 3 on 2 and 3.
    # Job 2 has its largest share on 0, which is taken.  It gets 2, so job 3 gets 3, although its largest share is on 2.
    found = rounded(
        (0, 0, 0.5), (0, 1, 0.5), (1, 0, 0.5), (1, 1, 0.5), (2, 0, 0.9), (2, 2, 0.1), (3, 2, 0.9), (3, 3, 0.1)
    )  # fmt: skip
    assert sorted(found[:2]) == [0, 1]
    assert found[2:] == [2, 3]


def test_two_cycles_in_one_component_are_untangled_first():
    # Two jobs on three accelerators, all shares a third: 6 edges between 5 nodes.
    edges = [(job, slot, 1 / 3) for job in range(2) for slot in range(3)]
    tangled, seconds = relaxed(*edges), np.full((2, 3), 3.0)
    untangled = pseudo_forest(tangled, seconds, np.zeros(3))
    assert len(untangled.job) <= 5
    busy_s = np.bincount(untangled.slot, untangled.share * 3.0)
    assert busy_s.max() == pytest.approx(2.0)  # 6 s of work on three, as before
    assert len(set(round_shares(tangled, seconds, np.zeros(3)).tolist())) == 2


@given(jobs=st.integers(1, 12), slots=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_every_accelerator_gets_at_most_one_split_job(jobs, slots, seed):
    seconds = np.random.default_rng(seed).integers(1, 6, (jobs, slots)).astype(float)
    found = one_shot(seconds, np.zeros(slots))
    accelerator = round_shares(found, seconds, np.zeros(slots))
    split = np.flatnonzero(np.bincount(found.job, minlength=jobs) > 1)
    assert len(set(accelerator[split].tolist())) == len(split)
    served = set(zip(found.job.tolist(), found.slot.tolist(), strict=True))
    assert all((job, int(accelerator[job])) in served for job in range(jobs))
