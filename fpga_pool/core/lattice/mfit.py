"""MFIT's queues (lattice paper, section II, on Jing et al. 2013)."""

from types import ModuleType

import numpy as np

from fpga_pool.core.lattice.listing import Placed, empty_schedule, first_fpgas, rigid_work
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Ints


def loops() -> ModuleType:
    """Return the module of the loops; the first call compiles them, or loads what was compiled before."""
    from fpga_pool.core.lattice import mfit_kernels

    return mfit_kernels


def queue_tasks(problem: TaskProblem, shape: Ints) -> Placed:
    """Return the schedule of one queue per enclosure.

    In order of arrival each task, in its shape (T,), joins the queue in which it would be done first, of equal ones
    that with the fewest tasks.  Tasks of one queue begin in its order.

    Raises
    ------
    ValueError
        Where a task fits in no enclosure.

    """
    work = rigid_work(problem, shape)
    placed = empty_schedule(problem, shape)
    kind, kinds = work.kind, len(work.kind_width)
    if problem.load_s > 0:  # what has to be loaded is another matter for each function
        function = np.unique(problem.function, return_inverse=True)[1].astype(np.int64)
        kind, kinds = kind + kinds * function, kinds * int(function.max(initial=0) + 1)
    loops().queue_tasks(
        problem.enclosure_fpgas, problem.enclosure_links, first_fpgas(problem),
        np.argsort(problem.arrival_s, kind="stable"), work.width, work.seconds, problem.arrival_s, problem.links,
        problem.function, kind, problem.loaded, problem.ready_s, placed.member_begin, problem.load_s, kinds,
        placed.enclosure, placed.begin_s, placed.end_s, placed.members,
    )  # fmt: skip
    return placed
