"""The policies that lattice paper compares: FIFO, HEFT in both readings, MFIT, and its ranking."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fpga_pool.core.lattice import mfit
from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.listing import Placed, list_schedule, loops
from fpga_pool.core.lattice.ranking import DEFAULT, check_dimensions, downset_ranks
from fpga_pool.core.lattice.shapes import allotted_shapes
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Ints


class ListPolicy:
    """What the policies share: a shape for each task, then a place and a time, then the bounds."""

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
    """First in, first out; the first that waits is overtaken by nobody (section I: "the scheduling will stall")."""

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
        mfit.loops()

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Append to queues in order of arrival."""
        return mfit.queue_tasks(problem, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticeParams:
    """The parameters of the ranking."""

    #: Section IV has rounds and says "empirical time slicing" of their length: without it nothing waits in vain.
    slice_s: float = field(
        default=0.0,
        metadata={"min": 0.0, "help": "Seconds between decisions; 0 = when FPGAs get free or tasks arrive."},
    )
    #: Section III leaves it to the reader (ranking.DEFAULT).
    order: str = field(
        default=",".join(DEFAULT),
        metadata={"help": "Dimensions of the partial order, with commas: fpgas, links, and seconds or -seconds."},
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
