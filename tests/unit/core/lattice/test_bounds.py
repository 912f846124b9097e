from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.listing import list_schedule
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology


@given(data=st.data())
def test_no_list_of_a_small_problem_beats_a_bound(data, problems):
    """Try every order and choice of shapes: without arrivals, loads and required links one of them is an optimum."""
    problem = data.draw(problems(most=4))
    bound_s = tight_bound_s(problem)
    assert paper_bound_s(problem) <= bound_s
    shapes = [range(problem.shape_begin[task], problem.shape_begin[task + 1]) for task in range(problem.tasks)]
    for shape in product(*shapes):
        for order in permutations(range(problem.tasks)):
            try:
                placed = list_schedule(problem, np.array(shape, np.int64), np.array(order, np.int64))
            except ValueError:
                continue  # a shape that fits in no enclosure
            assert bound_s <= placed.wct_s


def test_area_and_longest(rings):
    # 3 * 2 + 8 * 2 = 22 FPGA-seconds on 8 FPGAs, and the longest task takes 2 s.  No 3 fits beside an 8, but fillings
    # may cut the task of 3 into halves that run side by side: 1 + 2 s.
    problem = rings(1, [(3, 2.0), (8, 2.0)])
    assert paper_bound_s(problem) == pytest.approx(22 / 8)
    assert tight_bound_s(problem) == pytest.approx(3.0)
    assert paper_bound_s(rings(4, [(3, 2.0), (1, 7.0)])) == 7.0


def test_fillings_leave_FPGAs_idle(rings):  # noqa: N802
    # A ring of 8 fits one task of 5, so twelve of them take 6 s on two rings; the area gives 12 * 5 / 16.
    problem = rings(2, [(5, 1.0)] * 12)
    assert paper_bound_s(problem) == pytest.approx(3.75)
    assert tight_bound_s(problem) == pytest.approx(6.0)
    # With tasks of 3 beside them no FPGA is idle.  Tasks of 4 do not fit beside a 5: 12 / 2 + 8 / 4.
    assert tight_bound_s(rings(2, [*[(5, 1.0)] * 12, *[(3, 1.0)] * 12])) == pytest.approx(6.0)
    assert tight_bound_s(rings(2, [*[(5, 1.0)] * 12, *[(4, 1.0)] * 8])) == pytest.approx(8.0)


def test_fillings_of_enclosures_of_several_sizes():
    # A 6 fits only in the ring of 8; three of them take 3 s there.  The line of 4 has nothing to run.
    def bound_s(fpgas, topologies):
        return tight_bound_s(TaskProblem(
            enclosure_fpgas=fpgas, enclosure_links=topologies, shape_begin=range(4), shape_fpgas=[6] * 3,
            shape_seconds=[1.0] * 3, links=[int(Links.LINE)] * 3,
        ))  # fmt: skip

    assert bound_s([8, 4], [Topology.RING, Topology.LINE]) == pytest.approx(3.0)
    assert bound_s([8, 6], [Topology.RING, Topology.LINE]) == pytest.approx(2.0)  # whole tasks: 2 in one enclosure


def test_a_closed_ring_of_some_of_a_ring_has_to_go_to_a_full_enclosure():
    problem = TaskProblem(
        enclosure_fpgas=[8, 8], enclosure_links=[int(Topology.RING), int(Topology.FULL)], shape_begin=range(5),
        shape_fpgas=[4] * 4, shape_seconds=[1.0] * 4, links=[int(Links.RING)] * 4,
    )  # fmt: skip
    assert tight_bound_s(problem) == pytest.approx(2.0)  # two at a time; the area gives 1 s


def test_wide_tasks_follow_each_other(rings):
    # Of three tasks wider than half a ring, two have to share one of the two rings: at least the two shortest.
    problem = rings(2, [(5, 4.0), (6, 3.0), (7, 3.0), (1, 1.0)])
    assert tight_bound_s(problem) == pytest.approx(6.0)


def test_what_arrives_late_starts_late(rings):
    # From 10 s on, 64 FPGA-seconds arrive on 8 FPGAs; earlier tasks may have ended.
    problem = rings(1, [(8, 1.0), *[(4, 2.0)] * 8], arrival_s=[0.0] + [10.0] * 8)
    assert tight_bound_s(problem) == pytest.approx(18.0)


def test_what_is_not_ready_cannot_be_used(rings):
    # 4 FPGAs become ready at 6 s; until then 8 tasks of 1 FPGA for 3 s take 4 * 6 FPGA-seconds on the others.
    problem = rings(1, [(1, 3.0)] * 8, ready_s=[0.0] * 4 + [6.0] * 4)
    assert tight_bound_s(problem) == pytest.approx(6.0)
    # A task that needs all FPGAs begins at 6 s.
    assert tight_bound_s(rings(1, [(8, 3.0)], ready_s=[0.0] * 4 + [6.0] * 4)) == pytest.approx(9.0)


def test_a_malleable_task_counts_with_its_least(rings):
    problem = TaskProblem(
        enclosure_fpgas=[8], enclosure_links=[int(Topology.RING)], shape_begin=[0, 2, 4], shape_fpgas=[1, 8] * 2,
        shape_seconds=[8.0, 2.0] * 2, links=[1, 1],
    )  # fmt: skip
    # Each task takes at least 8 FPGA-seconds and 2 s; an optimum, with both wide, ends at 4 s.
    assert paper_bound_s(problem) == pytest.approx(2.0)
    assert 2.0 <= tight_bound_s(problem) <= 4.0


def test_no_tasks_take_no_time(rings):
    assert (paper_bound_s(rings(1, [])), tight_bound_s(rings(1, []))) == (0.0, 0.0)
