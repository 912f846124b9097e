"""Synthetic workloads of multi-FPGA tasks: like RTM, RTM with wide differences, and F11 (lattice paper, section V).

The paper publishes no task lists.  Its statements are kept: workloads of one task or of 2 to 20, a given irregularity,
RTM tasks that run shorter on more FPGAs, F11 tasks whose time does not depend on their number.  All else is our choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from fpga_pool.core.lattice.paper import irregularity, variation_of
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.lattice.files import TaskFile

#: FPGAs of an enclosure; the paper's MPC-X box is a ring of 8.
RING = 8

#: Range of the power that gives times an irregularity; at its ends all times are nearly equal, or one dominates.
_POWERS = (1e-3, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Possible numbers n of FPGAs of a task; its mean time, before the irregularity, is divided by n**speedup_power."""

    fpgas: tuple[int, ...]
    speedup_power: float


#: Models by name.
MODELS: Mapping[str, Model] = {
    "rtm": Model(fpgas=(1, 2, 4, 8), speedup_power=0.5),
    "rtmw": Model(fpgas=(1, 2, 3, 4, 6, 8), speedup_power=0.9),
    "f11": Model(fpgas=(1, 2, 3, 4, 5, 6, 7, 8), speedup_power=0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Parameters of the workloads to generate."""

    workloads: int
    #: Smallest and largest number of tasks of a workload.
    tasks: tuple[int, int] = (2, 20)
    #: Irregularity (Irg) of each workload, or of all tasks together if each workload has one task.
    irregularity: float = 0.3
    mean_s: float = 10.0
    #: Mean seconds between workloads that arrive one after the other; 0 = all at once.
    interval_s: float = 0.0
    enclosures: int = 4

    def __post_init__(self) -> None:
        if self.workloads < 1 or self.enclosures < 1:
            raise ValueError("workloads and enclosures: expected 1 or more")
        if not 1 <= self.tasks[0] <= self.tasks[1]:
            raise ValueError(f"tasks: expected a range of numbers from 1, got {self.tasks[0]}-{self.tasks[1]}")
        if not 0 <= self.irregularity <= 0.9:
            raise ValueError(
                f"irregularity: expected 0 to 0.9, the range possible with two tasks, got {self.irregularity:g}"
            )


def generate(model: str, wanted: Wanted, rng: np.random.Generator) -> TaskFile:
    """Return a problem of rings of 8 with tasks that need a line, or the whole ring.

    Times are gamma-distributed around a mean that falls with the FPGAs. Those of each workload are then raised to the
    power that gives the requested irregularity, and scaled so that their mean stays the same.
    """
    of = MODELS[model]
    counts = rng.integers(wanted.tasks[0], wanted.tasks[1] + 1, wanted.workloads)
    workload = np.repeat(np.arange(wanted.workloads), counts)
    fpgas = rng.choice(np.array(of.fpgas), len(workload))
    variation = max(variation_of(wanted.irregularity), 1e-3)
    seconds = wanted.mean_s * rng.gamma(1.0 / variation, variation, len(workload)) / fpgas**of.speedup_power
    arrival_s = np.cumsum(rng.exponential(wanted.interval_s, wanted.workloads))[workload]
    groups = workload if counts.max() > 1 else np.zeros(len(workload), np.int64)
    problem = TaskProblem(
        enclosure_fpgas=np.full(wanted.enclosures, RING),
        enclosure_links=np.full(wanted.enclosures, Topology.RING),
        shape_begin=np.arange(len(workload) + 1),
        shape_fpgas=fpgas,
        shape_seconds=_with_irregularity(seconds, groups, wanted.irregularity),
        links=np.where(fpgas == RING, Links.RING, Links.LINE),
        arrival_s=arrival_s,
    )
    number = [place for count in counts.tolist() for place in range(count)]
    return TaskFile(
        problem=problem,
        ids=tuple(f"w{w}-t{t}" for w, t in zip(workload.tolist(), number, strict=True)),
        workloads=tuple(f"w{w}" for w in workload.tolist()),
    )


def _with_irregularity(seconds: Floats, group: Ints, wanted: float) -> Floats:
    """Return the times, each group raised to the power that gives it the irregularity, with an unchanged mean."""
    changed = seconds.copy()
    for one in range(int(group.max()) + 1):
        mine = group == one
        changed[mine] = _raised(seconds[mine], wanted)
    return changed


def _raised(seconds: Floats, wanted: float) -> Floats:
    """Return the changed times of one group; a single time, or equal times, do not change."""
    logs = np.log(seconds / seconds.max())
    together = np.zeros(len(seconds), np.int64)

    def excess(power: float) -> float:
        return float(irregularity(np.exp(power * logs), together)[0]) - wanted

    power = _root(excess)
    raised = np.exp(power * logs)
    return raised * (seconds.mean() / raised.mean())


def _root(excess: Callable[[float], float]) -> float:
    """Return the root of the increasing function `excess` in `_POWERS`, or the end of that range nearest to it."""
    low, high = _POWERS
    if excess(low) >= 0:
        return low
    if excess(high) <= 0:
        return high
    return float(brentq(excess, low, high, xtol=1e-10))
