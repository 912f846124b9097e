"""The problem, tasks on enclosures of linked FPGAs, and the schedule that a policy returns.

Index conventions: T tasks in order of submission, E enclosures, S shapes (at least one per task), F FPGAs of all
enclosures, concatenated, M members (FPGAs of all scheduled tasks, concatenated).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from fpga_pool.core.types import Floats, Ints, fill_empty, floats, freeze_arrays, ints, require_shapes


class Links(IntEnum):
    """How the FPGAs of a task have to be linked, from the weakest requirement to the strongest."""

    #: Any free FPGAs of one enclosure.
    ANY = 0
    #: A connected path.
    LINE = 1
    #: A closed cycle; one FPGA, or two that are linked, count as one.
    RING = 2


class Topology(IntEnum):
    """How the FPGAs of an enclosure are linked."""

    LINE = 0
    RING = 1
    #: Each FPGA is linked with all others.
    FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskProblem:
    """T tasks to schedule on E enclosures: every array of the task format (doc/formats)."""

    #: (E,) number of FPGAs in each enclosure, and their `Topology`.
    enclosure_fpgas: Ints
    enclosure_links: Ints
    #: (T + 1,) index of each task's first shape in the two arrays below; a rigid task has one shape.
    shape_begin: Ints
    #: (S,) number of FPGAs that a task takes in this shape, and for how many seconds.
    shape_fpgas: Ints
    shape_seconds: Floats
    #: (T,) the `Links` that the task requests.
    links: Ints
    #: (T,) the time when the task arrives; neither the task nor its load begins earlier.
    arrival_s: Floats = field(default_factory=lambda: floats([]))
    #: (T,) function that its FPGAs compute, -1 = no specific one.
    function: Ints = field(default_factory=lambda: ints([]))
    #: (F,) function that each FPGA has initially, -1 = none, and the time when it becomes free.
    loaded: Ints = field(default_factory=lambda: ints([]))
    ready_s: Floats = field(default_factory=lambda: floats([]))
    #: Seconds that an FPGA takes to replace its function by another; loading an empty FPGA takes no time.
    load_s: float = 0.0

    def __post_init__(self) -> None:
        whole = ("enclosure_fpgas", "enclosure_links", "shape_begin", "shape_fpgas", "links", "function", "loaded")
        freeze_arrays(self, real=("shape_seconds", "arrival_s", "ready_s"), whole=whole)
        self._fill_optional()
        self._check_shapes()
        self._check_values()

    @property
    def tasks(self) -> int:
        """T, the number of tasks."""
        return len(self.links)

    @property
    def fpgas(self) -> int:
        """F, the FPGAs of all enclosures."""
        return int(self.enclosure_fpgas.sum())

    @property
    def rigid(self) -> bool:
        """Whether every task has exactly one shape."""
        return len(self.shape_fpgas) == self.tasks

    def _fill_optional(self) -> None:
        tasks, fpgas = self.tasks, self.fpgas
        fill_empty(
            self,
            arrival_s=floats(np.zeros(tasks)),
            ready_s=floats(np.zeros(fpgas)),
            function=ints(np.full(tasks, -1)),
            loaded=ints(np.full(fpgas, -1)),
        )

    def _check_shapes(self) -> None:
        tasks, fpgas, shapes = self.tasks, self.fpgas, len(self.shape_fpgas)
        expected = {
            "enclosure_links": (len(self.enclosure_fpgas),), "shape_begin": (tasks + 1,), "shape_seconds": (shapes,),
            "arrival_s": (tasks,), "function": (tasks,), "loaded": (fpgas,), "ready_s": (fpgas,),
        }  # fmt: skip
        require_shapes(self, expected)
        begin = self.shape_begin
        if begin[0] != 0 or begin[-1] != shapes or (np.diff(begin) < 1).any():
            raise ValueError(f"shape_begin: expected to rise from 0 to {shapes}, with a shape for each task")

    def _check_values(self) -> None:
        if (self.enclosure_fpgas < 1).any() or (self.shape_fpgas < 1).any():
            raise ValueError("enclosure_fpgas and shape_fpgas: expected 1 or more")
        for name, kinds in (("enclosure_links", Topology), ("links", Links)):
            if not np.isin(getattr(self, name), list(kinds)).all():
                raise ValueError(f"{name}: expected one of {[int(kind) for kind in kinds]}")
        for name in ("shape_seconds", "arrival_s", "ready_s"):
            array = getattr(self, name)
            if not (np.isfinite(array) & (array >= 0)).all():
                raise ValueError(f"{name}: expected finite numbers, 0 or more")
        # In the worst case, a schedule runs one task after the other, each with a load.
        with np.errstate(over="ignore"):
            work_s = self.shape_seconds.sum() + self.load_s * self.tasks
            latest_s = work_s + self.arrival_s.max(initial=0.0) + self.ready_s.max(initial=0.0)
        if not np.isfinite(latest_s):
            raise ValueError("shape_seconds, arrival_s, ready_s and load_s: expected finite sums")
        if not (np.isfinite(self.load_s) and self.load_s >= 0):
            raise ValueError("load_s: expected a finite number, 0 or more")
        if (self.function < -1).any() or (self.loaded < -1).any():
            raise ValueError("function and loaded: expected -1 or an index")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskSchedule:
    """When and where each task runs, and lower bounds that hold for every schedule of the problem."""

    #: (T,) the enclosure, the shape (an index of the problem's shapes), begin and end.
    enclosure: Ints
    shape: Ints
    begin_s: Floats
    end_s: Floats
    #: (T + 1,) index of each task's first FPGA in `members`, and (M,) the indices of FPGAs within the enclosure.
    member_begin: Ints
    members: Ints
    #: Lower bounds on the end of any schedule: the paper's, and the tightest proven one.
    bound_paper_s: float
    bound_tight_s: float

    def __post_init__(self) -> None:
        freeze_arrays(self, real=("begin_s", "end_s"), whole=("enclosure", "shape", "member_begin", "members"))

    @property
    def wct_s(self) -> float:
        """The workloads' completion time, at which the last task ends (lattice paper, section IV)."""
        return float(self.end_s.max(initial=0.0))


#: The sizes of the sets of connected free FPGAs, largest first.
Fragments = tuple[int, ...]


# ---- Choice of FPGAs of an enclosure that are linked as a task requests, so that the others stay connected

# Members are the indices of FPGAs within one enclosure.  On a line each is linked to the next one; on a ring the last
# is also linked to the first.  A choice leaves fragments: the sizes of the sets of free FPGAs that are still connected.
# Of two lists of fragments, longest first, the lexicographically greater one is better, since the largest set that
# remains for a wide task matters most.  All functions here are pure, for at most a few dozen members.


def connected_runs(members: Collection[int], size: int, topology: Topology) -> list[tuple[int, ...]]:
    """Return the maximal connected sets among members of an enclosure of `size`, each in the order of its path.

    Raises ValueError if a member is not in the enclosure.
    """
    there = set(members)
    if there and (min(there) < 0 or max(there) >= size):
        raise ValueError(f"members: expected indices of 0 to {size - 1}, found {sorted(there)}")
    if topology == Topology.FULL or len(there) == size:
        return [tuple(sorted(there))] if there else []
    # Start on a ring after a missing member, on a line at its end.
    begin = next(index for index in range(size) if index not in there) + 1 if topology == Topology.RING else 0
    runs: list[tuple[int, ...]] = []
    run: list[int] = []
    for index in (*((begin + step) % size for step in range(size)), None):
        if index in there:
            run.append(index)
        elif run:
            runs.append(tuple(run))
            run = []
    return runs


def fragments(free: Collection[int], size: int, topology: Topology) -> Fragments:
    """Return the sizes of the connected sets of free members, largest first."""
    return tuple(sorted(map(len, connected_runs(free, size, topology)), reverse=True))


def is_linked(members: Collection[int], size: int, topology: Topology, wish: Links) -> bool:
    """Return whether distinct members are linked as `wish` requires: in a connected path (line) or a cycle (ring).

    One FPGA, or two that are linked, count as a ring.
    """
    if wish == Links.ANY or topology == Topology.FULL or len(members) <= 1:
        return True
    if len(connected_runs(members, size, topology)) != 1:
        return False
    return wish == Links.LINE or len(members) == 2 or (topology == Topology.RING and len(members) == size)


def choose(
    free: Collection[int],
    size: int,
    topology: Topology,
    wish: Links,
    count: int,
    cost: Sequence[float] | None = None,
    admits: Callable[[tuple[int, ...]], bool] | None = None,
) -> tuple[int, ...] | None:
    """Return `count` free members that are linked as `wish` requires and that `admits` allows; None if there are none.

    Of all such sets, one with the smallest sum of `cost` (size,) is chosen; of those with equal costs, the one that
    leaves the best fragments, then the one with the lowest indices.  Members are in the order of their path.  `admits`
    is not called if every set of members is linked as required.  Raises ValueError if a member is not in the enclosure,
    or `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"count: expected 1 or more, found {count}")
    costs = [0.0] * size if cost is None else cost
    if wish == Links.ANY or topology == Topology.FULL:
        return _cheapest(set(free), size, topology, count, costs)
    # If `admits` is None, the filter keeps all paths.
    best: tuple[float, tuple[int, ...], tuple[int, ...]] | None = None
    for path in filter(admits, paths(free, size, topology, wish, count)):
        # Greater fragments are better.  All lists have the same sum, so none is a prefix of another.
        left = fragments(set(free) - set(path), size, topology)
        key = (sum(costs[index] for index in path), tuple(-length for length in left), path)
        best = key if best is None else min(best, key)
    return None if best is None else best[2]


def paths(free: Collection[int], size: int, topology: Topology, wish: Links, count: int) -> Iterator[tuple[int, ...]]:
    """Yield each connected path of `count` free members that is linked as `wish` requires, on a line or a ring."""
    for run in connected_runs(free, size, topology):
        closed = topology == Topology.RING and len(run) == size
        starts = size if closed and count < size else len(run) - count + 1
        for start in range(starts):
            path = tuple(run[(start + step) % len(run)] for step in range(count))
            if is_linked(path, size, topology, wish):
                yield path


def _cheapest(
    free: set[int], size: int, topology: Topology, count: int, cost: Sequence[float]
) -> tuple[int, ...] | None:
    """Return the cheapest members, linked or not; of equal ones those in the shortest runs, starting at one end."""
    if len(free) < count:
        return None
    limit = sorted(cost[index] for index in free)[count - 1]
    taken = {index for index in free if cost[index] < limit}
    runs = sorted(connected_runs(free - taken, size, topology), key=len)
    equal = [index for run in runs for index in run if cost[index] == limit]
    return tuple(sorted(taken.union(equal[: count - len(taken)])))
