"""The problem, tasks on enclosures of linked FPGAs, and the schedule that a policy returns.

Index conventions: T tasks in order of submission, E enclosures, S shapes (at least one per task), F FPGAs of all
enclosures, concatenated, M members (FPGAs of all scheduled tasks, concatenated).
"""

from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.core.types import Floats, Ints, fill_empty, floats, freeze_arrays, ints, require_shapes


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
