"""Ranking of tasks by dominance (lattice paper, section III, Algorithm 1); irregularity of workloads (section V)."""

from collections.abc import Sequence

import numpy as np

from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Floats, Ints

#: Dimensions that the partial order may have, each with its sign: `-seconds` orders shorter tasks above longer ones.
DIMENSIONS = ("fpgas", "links", "seconds", "-seconds")
#: The order of the policies: a task is below another that has as many FPGAs or more, links as strong or stronger, and
#: runs as long or longer.  The paper says of its ranking that it prefers shorter tasks on more FPGAs, which would be
#: ("fpgas",) or ("fpgas", "-seconds"); with the time ascending schedules are shorter (doc/algorithms/lattice).
DEFAULT = ("fpgas", "links", "seconds")


def downset_ranks(problem: TaskProblem, shape: Ints, dimensions: Sequence[str] = DEFAULT) -> Ints:
    """Return (T,) the rank of each task: the number of tasks, itself among them, that are at most it.

    Parameters
    ----------
    problem:
        The tasks.
    shape:
        (T,) the shape in which each task runs.
    dimensions:
        Those of `DIMENSIONS` in which a task has to be at most the other one.

    Raises
    ------
    ValueError
        For an unknown dimension, both signs of one, or none at all.

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
    """Return the dimensions, or raise a ValueError that says which there are."""
    unknown = [name for name in dimensions if name not in DIMENSIONS]
    if unknown or not dimensions:
        raise ValueError(f"order: expected some of {', '.join(DIMENSIONS)}, got {', '.join(dimensions) or 'none'}")
    if "seconds" in dimensions and "-seconds" in dimensions:
        raise ValueError("order: expected seconds or -seconds, got both")
    return tuple(dimensions)


def dominated(first: Floats, second: Floats) -> Ints:
    """Return (N,) how many of the N points are at most each one in both coordinates, itself among them.

    In O(N log N): points sorted by the first coordinate, and the second one looked at bit by bit from the highest
    on.  A point with a one there exceeds all before it that have a zero and share the higher bits.
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
    # Equal points come one after the other; each counts all of them, as the last one does.
    new = np.ones(count, np.bool_)
    new[:-1] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    last = np.flatnonzero(new)
    ranks = np.empty(count, np.int64)
    ranks[order] = found[last[np.searchsorted(last, np.arange(count))]]
    return ranks


def irregularity(seconds: Floats, workload: Ints) -> Floats:
    """Return (W,) Irg of each workload: the squared relative deviation of its tasks from their mean, weighted by time.

    A workload without any time has irregularity 0.

    Parameters
    ----------
    seconds:
        (T,) the time of each task.
    workload:
        (T,) the workload that it belongs to, 0 to W - 1.


    """
    count = np.bincount(workload)
    total = np.bincount(workload, weights=seconds).astype(np.float64)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    share = np.divide(seconds, total[workload], out=np.zeros_like(seconds), where=total[workload] > 0)
    deviation = np.divide(seconds, mean[workload], out=np.ones_like(seconds), where=mean[workload] > 0) - 1.0
    found: Floats = np.bincount(workload, weights=share * deviation**2).astype(np.float64)
    return found


def variation_of(irregularity_wanted: float) -> float:
    """Return the squared coefficient of variation of gamma-distributed times whose expected Irg is the given one.

    With mean 1 and squared variation c, Irg is the expectation of t (t - 1)^2, which is c + 2 c^2 for gamma.

    Raises
    ------
    ValueError
        Unless it is 0 or more and finite.

    """
    if not 0 <= irregularity_wanted < np.inf:
        raise ValueError(f"irregularity: expected 0 or more, got {irregularity_wanted!r}")
    return float((np.sqrt(1.0 + 8.0 * irregularity_wanted) - 1.0) / 4.0)
