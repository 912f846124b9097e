import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.paper import DIMENSIONS, downset_ranks
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology

_orders = st.lists(st.sampled_from(DIMENSIONS), min_size=1, max_size=3, unique=True).filter(
    lambda names: not {"seconds", "-seconds"} <= set(names)
)
_tasks = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(list(Links)), st.integers(0, 9)), max_size=40)


def problem_of(tasks):
    return TaskProblem(
        enclosure_fpgas=[16],
        enclosure_links=[int(Topology.FULL)],
        shape_begin=np.arange(len(tasks) + 1),
        shape_fpgas=np.array([fpgas for fpgas, _, _ in tasks], np.int64),
        shape_seconds=np.array([float(seconds) for _, _, seconds in tasks]),
        links=np.array([int(links) for _, links, _ in tasks], np.int64),
    )


def ranks_of(problem, dimensions):
    return downset_ranks(problem, problem.shape_begin[:-1], dimensions)


def sizes_of_downsets(problem, dimensions):
    """Return the size of each task's downset, by Algorithm 1 as it is written."""
    columns = {
        "fpgas": problem.shape_fpgas, "links": problem.links, "seconds": problem.shape_seconds,
        "-seconds": -problem.shape_seconds,
    }  # fmt: skip
    chosen = [columns[name] for name in dimensions]
    return [
        sum(all(column[j] <= column[i] for column in chosen) for j in range(problem.tasks))
        for i in range(problem.tasks)
    ]


@given(_tasks, _orders)
def test_rank_is_the_size_of_the_downset(tasks, dimensions):
    problem = problem_of(tasks)
    assert ranks_of(problem, dimensions).tolist() == sizes_of_downsets(problem, dimensions)


@given(_tasks)
def test_a_task_above_another_ranks_no_lower(tasks):
    """Section III: "order-preserving"."""
    ranks = ranks_of(problem_of(tasks), ("fpgas", "links", "seconds"))
    for one, rank in zip(tasks, ranks, strict=True):
        for other, other_rank in zip(tasks, ranks, strict=True):
            if all(a <= b for a, b in zip(one, other, strict=True)):
                assert rank <= other_rank


def test_ranks_of_an_example():
    # (2, line, 5 s) is above itself, (1, any, 3 s) and its duplicate; (8, ring, 1 s) is only above itself.
    tasks = [(1, Links.ANY, 3), (2, Links.LINE, 5), (8, Links.RING, 1), (2, Links.LINE, 5)]
    assert ranks_of(problem_of(tasks), ("fpgas", "links", "seconds")).tolist() == [1, 3, 1, 3]
    assert ranks_of(problem_of(tasks), ("fpgas",)).tolist() == [1, 3, 4, 3]
    assert ranks_of(problem_of(tasks), ("fpgas", "-seconds")).tolist() == [1, 2, 4, 2]


def test_large_numbers_of_tasks_agree_with_the_definition():
    rng = np.random.default_rng(5)
    count = 3000
    tasks = list(zip(rng.integers(1, 17, count), rng.integers(0, 3, count), rng.integers(0, 500, count), strict=True))
    problem = problem_of(tasks)
    fpgas, links, seconds = problem.shape_fpgas, problem.links, problem.shape_seconds
    below = (fpgas <= fpgas[:, None]) & (links <= links[:, None]) & (seconds <= seconds[:, None])
    assert (ranks_of(problem, ("fpgas", "links", "seconds")) == below.sum(axis=1)).all()


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        (("fpgas", "bytes"), "order: expected some of fpgas, links, seconds, -seconds, got fpgas, bytes"),
        ((), "order: expected some of fpgas, links, seconds, -seconds, got none"),
        (("seconds", "-seconds"), "order: expected seconds or -seconds, got both"),
    ],
)
def test_an_order_that_is_none_is_refused(dimensions, message):
    with pytest.raises(ValueError, match=message):
        ranks_of(problem_of([]), dimensions)
