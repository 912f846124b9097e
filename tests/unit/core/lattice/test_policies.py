import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.listing import misfit
from fpga_pool.core.lattice.paper import Fifo, Heft, HeftShortest, Lattice, LatticeParams, Mfit
from fpga_pool.core.lattice.starting import planned
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology

POLICIES = {
    "fifo": Fifo(),
    "heft": Heft(),
    "heft_shortest": HeftShortest(),
    "mfit": Mfit(),
    "lattice": Lattice(),
    "lattice in slices": Lattice(LatticeParams(slice_s=0.7)),
    "lattice by another order": Lattice(LatticeParams(order="fpgas,-seconds")),
}


def schedule(policy, problem):
    return policy.decide(problem, None, 0.0, np.random.default_rng(0))


def members(found, task):
    return found.members[found.member_begin[task] : found.member_begin[task + 1]].tolist()


def test_times_whose_sum_is_not_finite_are_refused():
    # Compiled loops search for the earliest of finite times.
    with pytest.raises(ValueError, match="finite sums"):
        TaskProblem(
            enclosure_fpgas=[2], enclosure_links=[int(Topology.LINE)], shape_begin=range(3), shape_fpgas=[2, 2],
            shape_seconds=[1e308, 1e308], links=[int(Links.LINE)] * 2,
        )  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
@given(data=st.data())
def test_checker_accepts_every_schedule_and_no_bound_exceeds_it(name, data, problems, checked):
    problem = data.draw(problems())
    found = schedule(POLICIES[name], problem)
    said = checked(problem, found)
    assert said["wct_s"] == found.wct_s
    assert found.bound_paper_s <= found.bound_tight_s <= found.wct_s
    assert found.bound_paper_s == pytest.approx(said["bound_s"], rel=1e-9)


@given(data=st.data())
def test_fifo_lets_nobody_overtake(data, problems):
    problem = data.draw(problems())
    begin_s = schedule(Fifo(), problem).begin_s[np.argsort(problem.arrival_s, kind="stable")]
    assert (np.diff(begin_s) >= -problem.load_s).all()


@given(data=st.data())
def test_nothing_waits_for_what_is_free(data, problems):
    """If no links are required, a task that begins late had too few free FPGAs at every moment before."""
    problem = data.draw(problems(arrivals=False))
    found = schedule(Lattice(), problem)
    if problem.load_s > 0 or (problem.links != Links.ANY).any():
        return
    width = problem.shape_fpgas[found.shape]
    base = np.concatenate(([0], np.cumsum(problem.enclosure_fpgas)))
    for task in range(problem.tasks):
        for now_s in (0.0, *problem.ready_s, *found.end_s):
            if now_s >= found.begin_s[task]:
                continue
            runs = (found.begin_s <= now_s) & (now_s < found.end_s)
            for e, size in enumerate(problem.enclosure_fpgas):
                busy = (problem.ready_s[base[e] : base[e + 1]] > now_s).sum()
                assert busy + width[runs & (found.enclosure == e)].sum() + width[task] > size


def test_fifo_stalls_where_the_others_fill(rings):
    # Figure 1: the first two leave too few FPGAs for the third; the fourth would not have to wait for it.
    problem = rings(1, [(3, 2.0), (3, 2.0), (6, 1.0), (2, 1.0)])
    assert schedule(Fifo(), problem).begin_s.tolist() == [0.0, 0.0, 2.0, 2.0]
    assert schedule(Heft(), problem).begin_s.tolist() == [0.0, 0.0, 2.0, 0.0]


def test_the_longest_or_the_shortest_comes_first(rings):
    problem = rings(1, [(8, 2.0), (8, 1.0), (8, 3.0)])
    assert schedule(Heft(), problem).begin_s.tolist() == [3.0, 5.0, 0.0]
    assert schedule(HeftShortest(), problem).begin_s.tolist() == [1.0, 0.0, 3.0]


def test_mfit_joins_the_queue_that_is_done_first(rings):
    # Both rings are free, so the first two tasks get one each.  The third ends first where 8 FPGAs become free at 1 s.
    problem = rings(2, [(8, 2.0), (8, 1.0), (8, 5.0), (1, 1.0)])
    found = schedule(Mfit(), problem)
    assert found.enclosure.tolist() == [0, 1, 1, 0]
    assert found.begin_s.tolist() == [0.0, 0.0, 1.0, 2.0]


def test_lattice_serves_by_rank(rings):
    # (8, 1 s) is above (2, 1 s) and itself.  So is (4, 9 s), which comes later, in the order of submission.
    problem = rings(1, [(2, 1.0), (8, 1.0), (4, 9.0)])
    assert schedule(Lattice(), problem).begin_s.tolist() == [1.0, 0.0, 1.0]


def test_a_slice_decides_at_its_multiples_only(rings):
    problem = rings(1, [(8, 1.0), (8, 0.5), (8, 2.0)])
    # Rank order is 2.0, 1.0, 0.5: from 0 to 2, then from 2.1 to 3.1, then from 3.5.
    found = schedule(Lattice(LatticeParams(slice_s=0.7)), problem)
    assert found.begin_s == pytest.approx([2.1, 3.5, 0.0])


def test_few_tasks_are_where_the_ranking_loses_to_heft(rings):
    """Section VI: with few tasks HEFT is better, since a long task that begins last on few FPGAs ends late."""
    # By rank, eight tasks of 4 FPGAs fill both rings for 2 * 2 s, then the long one runs: 4 + 8.  By HEFT it runs from
    # the start, beside three halves of rings with the others: 3 * 2 s.
    problem = rings(2, [*[(4, 2.0)] * 8, (1, 8.0)])
    assert schedule(Lattice(), problem).wct_s == 12.0
    assert schedule(Heft(), problem).wct_s == 8.0


def test_loads_are_waited_for_and_avoided(rings):
    problem = rings(1, [(4, 1.0), (4, 1.0), (4, 1.0)], function=[0, 1, 1], load_s=0.5)
    found = schedule(Fifo(), problem)
    # Both halves begin empty; the third task finds its function loaded on the second half.
    assert members(found, 2) == members(found, 1)
    assert found.begin_s.tolist() == [0.0, 0.0, 1.0]
    other = rings(1, [(8, 1.0), (8, 1.0)], function=[0, 1], load_s=0.5)
    assert schedule(Fifo(), other).begin_s.tolist() == [0.0, 1.5]
    loaded = rings(1, [(8, 1.0)], function=[0], loaded=[1] * 8, load_s=0.5)
    assert schedule(Fifo(), loaded).begin_s.tolist() == [0.5]


def test_a_path_goes_round_a_ring_but_not_over_the_ends_of_a_line():
    for topology, begin_s in ((Topology.RING, 0.0), (Topology.LINE, 5.0), (Topology.FULL, 0.0)):
        problem = TaskProblem(
            enclosure_fpgas=[4], enclosure_links=[int(topology)], shape_begin=[0, 1], shape_fpgas=[2],
            shape_seconds=[1.0], links=[int(Links.LINE)], ready_s=[0.0, 5.0, 9.0, 0.0],
        )  # fmt: skip
        assert schedule(Lattice(), problem).begin_s.tolist() == [begin_s]


def test_a_closed_ring_takes_all_of_a_ring_or_any_of_a_full_enclosure():
    def begins(topology, fpgas):
        problem = TaskProblem(
            enclosure_fpgas=[4], enclosure_links=[int(topology)], shape_begin=[0, 1], shape_fpgas=[fpgas],
            shape_seconds=[1.0], links=[int(Links.RING)], ready_s=[0.0, 1.0, 2.0, 3.0],
        )  # fmt: skip
        return schedule(Lattice(), problem).begin_s[0] if misfit(problem) is None else None

    assert [begins(Topology.RING, k) for k in (1, 2, 3, 4)] == [0.0, 1.0, None, 3.0]
    assert [begins(Topology.FULL, k) for k in (1, 2, 3, 4)] == [0.0, 1.0, 2.0, 3.0]
    assert [begins(Topology.LINE, k) for k in (1, 2, 3, 4)] == [0.0, 1.0, None, None]


def test_malleable_tasks_take_shapes_that_balance_area_and_longest():
    # Four tasks of 1 FPGA for 8 s or 4 for 3 s on a ring of 8: all narrow end at 8 s, all wide at 48 / 8 = 6 s.
    problem = TaskProblem(
        enclosure_fpgas=[8], enclosure_links=[int(Topology.RING)], shape_begin=[0, 2, 4, 6, 8],
        shape_fpgas=[1, 4] * 4, shape_seconds=[8.0, 3.0] * 4, links=[1] * 4,
    )  # fmt: skip
    found = schedule(Lattice(), problem)
    assert found.shape.tolist() == [1, 3, 5, 7]
    assert found.wct_s == 6.0


def test_a_task_that_fits_nowhere_is_refused(rings):
    problem = rings(2, [(1, 1.0), (9, 1.0)])
    for policy in POLICIES.values():
        with pytest.raises(ValueError, match="task 1: 9 FPGAs with the requested links are in no enclosure"):
            schedule(policy, problem)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"slice_s": -1.0}, "slice_s: expected seconds, 0 or more, got -1.0"), ({"order": ""}, "order: expected some of")],
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        LatticeParams(**parameters)


DIGEST = """
import hashlib, sys
import numpy as np
from fpga_pool.core.lattice.paper import Fifo, Heft, HeftShortest, Lattice, Mfit
from fpga_pool.core.lattice.tasks import TaskProblem
rng = np.random.default_rng(3)
digest = hashlib.sha256()
for load_s in (0.0, 0.3):
    size, topology, n = rng.integers(3, 12, 6), rng.integers(0, 3, 6), 80
    problem = TaskProblem(
        enclosure_fpgas=[*size, 8, 9], enclosure_links=[*topology, 1, 2], shape_begin=np.arange(n + 1),
        shape_fpgas=rng.choice([1, 2, 3, 8], n), shape_seconds=rng.gamma(2.0, 1.0, n), links=rng.integers(0, 2, n),
        arrival_s=rng.gamma(2.0, 1.0, n) * (rng.random(n) < 0.5), function=rng.integers(-1, 3, n), load_s=load_s,
    )
    for policy in (Fifo(), Heft(), HeftShortest(), Mfit(), Lattice()):
        found = policy.decide(problem, None, 0.0, rng)
        for array in (found.enclosure, found.begin_s, found.end_s, found.members):
            digest.update(array.tobytes())
print("numba" in sys.modules, digest.hexdigest())
"""


@pytest.mark.long
def test_without_numba_the_schedules_are_the_same():
    blocked = "import sys; sys.modules['numba'] = None\n"
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=280).stdout
        for code in (DIGEST, blocked + DIGEST.replace('"numba" in sys.modules', 'sys.modules["numba"] is not None'))
    ]
    assert said[0].startswith("True ")
    assert said[1].startswith("False ")
    assert said[0].split()[1] == said[1].split()[1]


class Learned(Fifo):
    """A policy that records the learned state with which it places tasks."""

    def place(self, problem, shape, state):
        self.remembered = state
        return super().place(problem, shape, state)


@pytest.mark.parametrize("with_bounds", [True, False])
def test_a_policy_that_ranks_tasks_sees_what_it_remembers(with_bounds):
    policy, rng = Learned(), np.random.default_rng(0)
    problem = TaskProblem(
        enclosure_fpgas=[2], enclosure_links=[Topology.RING], shape_begin=[0, 1], shape_fpgas=[1], shape_seconds=[1.0],
        links=[Links.ANY],
    )  # fmt: skip
    if with_bounds:
        policy.decide(problem, {"runs": 3}, 0.0, rng)
    else:
        planned(policy, problem, {"runs": 3}, rng)
    assert policy.remembered == {"runs": 3}
