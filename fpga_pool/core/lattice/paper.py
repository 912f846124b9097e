"""The policies that the lattice paper compares: FIFO, both interpretations of HEFT, MFIT, and its own ranking.

MFIT, with one queue per enclosure, follows section II on Jing et al., 2013.
"""

from collections.abc import Sequence
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
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats, Ints

#: Possible dimensions of the partial order, with their signs: `-seconds` ranks shorter tasks above longer ones.
DIMENSIONS = ("fpgas", "links", "seconds", "-seconds")
#: The default partial order: a task is below another one that has at least as many FPGAs and links at least as strong,
#: and runs at least as long.  According to the paper its ranking prefers shorter tasks on more FPGAs, which would be
#: ("fpgas",) or ("fpgas", "-seconds"); but with ascending time, schedules are shorter (doc/algorithms/lattice).
DEFAULT = ("fpgas", "links", "seconds")


def downset_ranks(problem: TaskProblem, shape: Ints, dimensions: Sequence[str] = DEFAULT) -> Ints:
    """Return (T,) the rank of each task: the size of its downset, the tasks (including itself) that are at most it.

    Tasks run in their `shape` (T,).  A task is at most another one if it is so in all of the `dimensions`.  Raises
    ValueError for an unknown dimension, both signs of one, or no dimension.
    """
    chosen = check_dimensions(dimensions)
    zeros = np.zeros(problem.tasks)
    seconds = problem.shape_seconds[shape]
    time = seconds if "seconds" in chosen else -seconds if "-seconds" in chosen else zeros
    width = problem.shape_fpgas[shape].astype(np.float64) if "fpgas" in chosen else zeros
    links = problem.links if "links" in chosen else np.zeros(problem.tasks, np.int64)
    ranks = np.zeros(problem.tasks, np.int64)
    for level in np.unique(links):
        below = np.flatnonzero(links <= level)
        counts = dominated(time[below], width[below])
        mine = links[below] == level
        ranks[below[mine]] = counts[mine]
    return ranks


def check_dimensions(dimensions: Sequence[str]) -> tuple[str, ...]:
    """Return the dimensions as a tuple; raise a ValueError that lists the possible ones if they are invalid."""
    unknown = [name for name in dimensions if name not in DIMENSIONS]
    if unknown or not dimensions:
        raise ValueError(f"order: expected some of {', '.join(DIMENSIONS)}, got {', '.join(dimensions) or 'none'}")
    if "seconds" in dimensions and "-seconds" in dimensions:
        raise ValueError("order: expected seconds or -seconds, got both")
    return tuple(dimensions)


def dominated(first: Floats, second: Floats) -> Ints:
    """Return (N,) how many of the N points are at most each point in both coordinates, including itself.

    Takes O(N log N): points are sorted by the first coordinate, and the second is processed bit by bit from the highest
    one.  A point with a 1 bit exceeds all points before it that have a 0 bit and the same higher bits.
    """
    count = len(first)
    order = np.lexsort((second, first))
    values = np.unique(second[order], return_inverse=True)[1].astype(np.int64)
    found = np.zeros(count, np.int64)
    place = np.arange(count)
    for bit in range(int(values.max(initial=0)).bit_length() - 1, -1, -1):
        zero = ((values[place] >> bit) & 1) == 0
        zeros = np.concatenate(([0], np.cumsum(zero)))
        group = values[place] >> (bit + 1)
        begin = np.searchsorted(group, group)
        found[place] += np.where(zero, 0, zeros[:-1] - zeros[begin])
        place = place[np.argsort(values[place] >> bit, kind="stable")]
    begin = np.searchsorted(values[place], values[place])
    found[place] += np.arange(count) - begin + 1
    # Equal points are adjacent; each counts all of them, as the last one does.
    new = np.ones(count, np.bool_)
    new[:-1] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    last = np.flatnonzero(new)
    ranks = np.empty(count, np.int64)
    ranks[order] = found[last[np.searchsorted(last, np.arange(count))]]
    return ranks


def irregularity(seconds: Floats, workload: Ints) -> Floats:
    """Return (W,) Irg of each workload: the squared relative deviation of its tasks from their mean, weighted by time.

    Tasks take `seconds` (T,) and belong to the workloads `workload` (T,), 0 to W - 1; a workload whose tasks take no
    time has irregularity 0.
    """
    count = np.bincount(workload)
    total = np.bincount(workload, weights=seconds).astype(np.float64)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    share = np.divide(seconds, total[workload], out=np.zeros_like(seconds), where=total[workload] > 0)
    deviation = np.divide(seconds, mean[workload], out=np.ones_like(seconds), where=mean[workload] > 0) - 1.0
    found: Floats = np.bincount(workload, weights=share * deviation**2).astype(np.float64)
    return found


def variation_of(irregularity_wanted: float) -> float:
    """Return the squared coefficient of variation of gamma-distributed times with the given expected Irg.

    With mean 1 and squared variation c, Irg is the expectation of t (t - 1)^2, which is c + 2 c^2 for gamma.
    Raises ValueError unless the irregularity is at least 0 and finite.
    """
    if not 0 <= irregularity_wanted < np.inf:
        raise ValueError(f"irregularity: expected 0 or more, got {irregularity_wanted!r}")
    return float((np.sqrt(1.0 + 8.0 * irregularity_wanted) - 1.0) / 4.0)


def mfit_loops() -> ModuleType:
    """Return the module of the loops; the first call compiles them, or loads them from the cache."""
    from fpga_pool.core.lattice.kernels import mfit

    return mfit


def queue_tasks(problem: TaskProblem, shape: Ints) -> Placed:
    """Return the schedule with one queue per enclosure; raise a ValueError if a task fits in no enclosure.

    In order of arrival each task, in its shape (T,), joins the queue in which it would end first; of equal queues, the
    one with the fewest tasks.  Tasks of one queue begin in its order.
    """
    work = rigid_work(problem, shape)
    placed = empty_schedule(problem, shape)
    kind, kinds = work.kind, len(work.kind_width)
    if problem.load_s > 0:  # loads depend on the function, so kinds have to be distinguished by it
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
    """Base of the policies: chooses a shape for each task, then its place and time, and computes the bounds."""

    name: str

    def prepare(self) -> None:
        """Compile the loops, or load them from the cache."""
        loops()

    def decide(self, view: TaskProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> TaskSchedule:
        """Schedule all tasks; deterministic, `rng` is not used.  Raises ValueError if a task fits in no enclosure."""
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
        """Schedule tasks in order of arrival, and of submission if they arrive at the same time."""
        return list_schedule(problem, shape, np.argsort(problem.arrival_s, kind="stable"), strict=True)


class Heft(ListPolicy):
    """HEFT without dependencies: the longest task that fits begins first (section VI)."""

    name = "heft"

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Schedule tasks by decreasing time."""
        return list_schedule(problem, shape, np.argsort(-problem.shape_seconds[shape], kind="stable"))


class HeftShortest(ListPolicy):
    """HEFT as described in section II: "the highest priority to the task that has the minimum execution time"."""

    name = "heft_shortest"

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Schedule tasks by increasing time."""
        return list_schedule(problem, shape, np.argsort(problem.shape_seconds[shape], kind="stable"))


class Mfit(ListPolicy):
    """MFIT: each task joins the queue of the enclosure where it would end first (section II)."""

    name = "mfit"

    def prepare(self) -> None:
        """Compile the loops of the queues, or load them from the cache."""
        mfit_loops()

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Append tasks to the queues in order of arrival."""
        return queue_tasks(problem, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticeParams(Parameters):
    """The parameters of the ranking."""

    #: Section IV has rounds, with lengths by "empirical time slicing"; without them, no task waits for the next round.
    slice_s: float = parameter(
        0.0, "Seconds between decisions; 0 = whenever FPGAs become free or tasks arrive.", min=0.0
    )
    #: Section III does not define it; see `DEFAULT`.
    order: str = parameter(
        ",".join(DEFAULT),
        "Dimensions of the partial order, separated by commas: fpgas, links, and seconds or -seconds.",
    )

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_dimensions(self.dimensions)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions of the order."""
        return tuple(name.strip() for name in self.order.split(",") if name.strip())


class Lattice(ListPolicy):
    """The paper's policy: tasks with the largest downsets first (Algorithms 1 and 2)."""

    name = "lattice"
    Params: ClassVar[type[LatticeParams]] = LatticeParams

    def __init__(self, params: LatticeParams | None = None) -> None:
        self._params = params or self.Params()

    def place(self, problem: TaskProblem, shape: Ints, state: PolicyState) -> Placed:
        """Schedule tasks by decreasing rank, and those of equal rank in order of submission."""
        ranks = downset_ranks(problem, shape, self._params.dimensions)
        return list_schedule(problem, shape, np.argsort(-ranks, kind="stable"), slice_s=self._params.slice_s)
