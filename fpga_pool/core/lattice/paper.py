"""The policies that the lattice paper compares: FIFO, HEFT in both readings, MFIT, and its own ranking.

MFIT, a queue per enclosure, follows section II, on Jing et al. 2013.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numpy as np

from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.listing import (
    Placed,
    allotted_shapes,
    empty_schedule,
    first_fpgas,
    list_schedule,
    loops,
    rigid_work,
)
from fpga_pool.core.lattice.ranking import DEFAULT, check_dimensions, downset_ranks
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Ints, parameter


def mfit_loops() -> ModuleType:
    """Return the module of the loops; the first call compiles them, or loads what was compiled before."""
    from fpga_pool.core.lattice.kernels import mfit

    return mfit


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
    mfit_loops().queue_tasks(
        problem.enclosure_fpgas, problem.enclosure_links, first_fpgas(problem),
        np.argsort(problem.arrival_s, kind="stable"), work.width, work.seconds, problem.arrival_s, problem.links,
        problem.function, kind, problem.loaded, problem.ready_s, placed.member_begin, problem.load_s, kinds,
        placed.enclosure, placed.begin_s, placed.end_s, placed.members,
    )  # fmt: skip
    return placed


class ListPolicy:
    """Base of the policies: a shape for each task, then a place and a time, then the bounds."""

    name: str

    def prepare(self) -> None:
        """Compile what is compiled, or load it."""
        loops()

    def decide(self, view: TaskProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> TaskSchedule:
        """Schedule all tasks; deterministic, `rng` is not used.

        Raises
        ------
        ValueError
            Where a task fits in no enclosure.

        """
        placed = self.place(view, allotted_shapes(view), state)
        return TaskSchedule(
            enclosure=placed.enclosure,
            shape=placed.shape,
            begin_s=placed.begin_s,
            end_s=placed.end_s,
            member_begin=placed.member_begin,
            members=placed.members,
            bound_paper_s=paper_bound_s(view),
            bound_tight_s=tight_bound_s(view),
        )

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Return when and where each task runs in the given shape."""
        raise NotImplementedError


class Fifo(ListPolicy):
    """First in, first out; no task overtakes the first waiting one (section I: "the scheduling will stall")."""

    name = "fifo"

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Serve in order of arrival, those that arrive together as they were submitted."""
        return list_schedule(problem, shape, np.argsort(problem.arrival_s, kind="stable"), strict=True)


class Heft(ListPolicy):
    """HEFT without dependences: the longest task that fits first (section VI)."""

    name = "heft"

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Serve by falling time."""
        return list_schedule(problem, shape, np.argsort(-problem.shape_seconds[shape], kind="stable"))


class HeftShortest(ListPolicy):
    """HEFT as section II has it: "the highest priority to the task that has the minimum execution time"."""

    name = "heft_shortest"

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Serve by rising time."""
        return list_schedule(problem, shape, np.argsort(problem.shape_seconds[shape], kind="stable"))


class Mfit(ListPolicy):
    """MFIT: each task joins the queue of the enclosure where it is done first (section II)."""

    name = "mfit"

    def prepare(self) -> None:
        """Compile the loops of the queues, or load them."""
        mfit_loops()

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Append to queues in order of arrival."""
        return queue_tasks(problem, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticeParams:
    """The parameters of the ranking."""

    #: Section IV has rounds and says "empirical time slicing" of their length: without it nothing waits in vain.
    slice_s: float = parameter(
        0.0, "Seconds between decisions; 0 = whenever FPGAs become free or tasks arrive.", min=0.0
    )
    #: Section III leaves it to the reader (ranking.DEFAULT).
    order: str = parameter(
        ",".join(DEFAULT),
        "Dimensions of the partial order, separated by commas: fpgas, links, and seconds or -seconds.",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.slice_s < float("inf"):
            raise ValueError(f"slice_s: expected seconds, 0 or more, got {self.slice_s!r}")
        check_dimensions(self.dimensions)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions of the order."""
        return tuple(name.strip() for name in self.order.split(",") if name.strip())


class Lattice(ListPolicy):
    """The paper's policy: those with the largest downset first (Algorithms 1 and 2)."""

    name = "lattice"
    Params: ClassVar[type[LatticeParams]] = LatticeParams

    def __init__(self, params: LatticeParams | None = None) -> None:
        self._params = params or self.Params()

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Serve by falling rank, those of one rank as they were submitted."""
        ranks = downset_ranks(problem, shape, self._params.dimensions)
        return list_schedule(problem, shape, np.argsort(-ranks, kind="stable"), slice_s=self._params.slice_s)
