"""How much benefit a clairvoyant scheduler could get at most: a linear relaxation, valid for every policy.

Time is cut into buckets.  Work of a function may be done by nobody in particular, at any rate, split over slots, and
loads take no time once slots have been loaded first; what remains are necessary conditions that every schedule of the
simulator keeps:

* work is done between its job's arrival and the end of its window, see `Windows`;
* a bucket has no more slot time of a kind than there are slots, fewer at the start, when every slot is empty and the
  slots of a card are loaded one after the other;
* a bucket moves no more bytes than the DMA engines of all cards.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.types import Floats, Ints

#: Buckets of one linear program; a longer trace is cut into several.
_BUCKETS = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """J jobs: the work of each, and when it can be done at all."""

    #: (J,) index of the function; jobs that fit nowhere are left out.
    function: Ints
    work_s: Floats
    #: (J,) arrival, and the latest moment at which the job could still run on a slot.
    from_s: Floats
    to_s: Floats


def windows(pool: OnlinePool, function: Ints, arrival_s: Floats, work_s: Floats, patience_s: Floats) -> Windows:
    """Return the windows of all jobs that fit somewhere.

    A job is given to a slot within its patience; the slot may still have to load.  Then it runs without a break, at
    no less than the rate it has when all slots of its card share the DMA equally: max-min fairness gives nobody less.
    """
    known = function >= 0
    function = function[known]
    neighbours = np.bincount(pool.slot_card, minlength=len(pool.dma_bps)).max(initial=1)
    asked = np.where(pool.fits, pool.io_bps, 0.0).max(axis=0)
    slowest = np.minimum(1.0, pool.dma_bps.min() / neighbours / np.maximum(asked, 1e-300))
    to_s = arrival_s[known] + patience_s[known] + pool.load_s.max() + work_s[known] / slowest[function]
    return Windows(function=function, work_s=work_s[known], from_s=arrival_s[known], to_s=to_s)


def relaxed_bound(pool: OnlinePool, jobs: Windows, horizon_s: float, buckets: int | None = None) -> float:
    """Return a mean benefit up to `horizon_s`, in vCPUs, that no schedule exceeds.

    Parameters
    ----------
    pool
        The slots, all empty at time 0.
    jobs
        What arrives, all of it known in advance.
    horizon_s
        Benefit counts until then.
    buckets
        How finely time is cut; by default so that a job's window is some twenty buckets long.

    """
    if horizon_s <= 0 or not len(jobs.function):
        return 0.0
    if buckets is None:
        window_s = float(np.median(jobs.to_s - jobs.from_s))
        buckets = int(np.clip(20 * horizon_s / max(window_s, 1e-9), 50, 20 * _BUCKETS))
    edges_s = np.linspace(0.0, horizon_s, buckets + 1)
    total = 0.0
    for first in range(0, buckets, _BUCKETS):
        total += _part(pool, jobs, edges_s[first : first + _BUCKETS + 1])
    return total / horizon_s


def _part(pool: OnlinePool, jobs: Windows, edges_s: Floats) -> float:
    """Return the most vCPU-seconds of the buckets between the edges: a linear program.

    Variables per bucket: work y of each pair (kind, function) that fits, then per function Z, the work done or given
    up since the first edge.
    """
    functions, count = len(pool.functions), len(edges_s) - 1
    length_s = np.diff(edges_s)
    pairs = np.argwhere(pool.fits)
    pair_count = len(pairs)
    low, high, present_s = _supply(jobs, functions, edges_s)
    width = pair_count + functions
    column = np.arange(count)[:, None] * width
    rows: list[Ints] = []
    columns: list[Ints] = []
    values: list[Floats] = []

    def add(row: Ints, at: Ints, value: float | Floats) -> None:
        rows.append(np.ravel(row))
        columns.append(np.ravel(at))
        values.append(np.ravel(np.broadcast_to(value, np.shape(row))))

    right: list[Floats] = []
    # Z[k-1] + sum of y[k] - Z[k] <= 0
    for f in range(functions):
        row = f * count + np.arange(count)
        of = np.flatnonzero(pairs[:, 1] == f)
        add(np.repeat(row, len(of)), column + of, 1.0)
        add(row, column[:, 0] + pair_count + f, -1.0)
        add(row[1:], column[:-1, 0] + pair_count + f, 1.0)
    right.append(np.zeros(functions * count))
    base = functions * count
    slots, anywhere = _capacity(pool, edges_s)
    for kind in range(len(pool.load_s)):
        of = np.flatnonzero(pairs[:, 0] == kind)
        add(np.repeat(base + np.arange(count), len(of)), column + of, 1.0)
        right.append(length_s * slots[kind])
        base += count
    every = np.arange(pair_count)
    add(np.repeat(base + np.arange(count), pair_count), column + every, 1.0)
    right.append(anywhere)
    base += count
    gigabits = pool.io_bps[pairs[:, 0], pairs[:, 1]] / 1e9
    add(np.repeat(base + np.arange(count), pair_count), column + every, np.tile(gigabits, count))
    right.append(length_s * pool.dma_bps.sum() / 1e9)
    base += count
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(base, count * width)
    ).tocsr()
    gain = np.zeros((count, width))
    gain[:, :pair_count] = pool.speedup[pairs[:, 1]]
    least, most = np.zeros((count, width)), np.zeros((count, width))
    most[:, :pair_count] = present_s[pairs[:, 1]].T
    least[:, pair_count:], most[:, pair_count:] = low.T, high.T
    found = linprog(
        -gain.ravel(), A_ub=matrix, b_ub=np.concatenate(right), bounds=np.c_[least.ravel(), most.ravel()], method="highs"
    )
    if found.status != 0:
        raise ValueError(f"the relaxation has no solution: {found.message}")
    return float(-found.fun)


def _supply(jobs: Windows, functions: int, edges_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Return, (F, buckets) each: work that must be over by the end, that can be by then, and that can be in a bucket.

    Only jobs whose window reaches into the buckets count.  A job progresses by at most a second per second.
    """
    low, high, present_s = (np.zeros((functions, len(edges_s) - 1)) for _ in range(3))
    inside = (jobs.to_s > edges_s[0]) & (jobs.from_s < edges_s[-1])
    for f in range(functions):
        mine = inside & (jobs.function == f)
        work_s, from_s, to_s = jobs.work_s[mine], jobs.from_s[mine], jobs.to_s[mine]
        low[f] = _summed(to_s, work_s, edges_s[1:], "right")
        high[f] = _summed(from_s, work_s, edges_s[1:], "left")
        # Time that jobs of the function are there, up to each edge.
        there_s = _ramp(from_s, edges_s) - _ramp(to_s, edges_s)
        present_s[f] = np.maximum(np.diff(there_s), 0.0) * (1 + 1e-9)
    return low, high, present_s


def _summed(at_s: Floats, work_s: Floats, edges_s: Floats, side: str) -> Floats:
    """Return the work of what is before each edge."""
    order = np.argsort(at_s, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(work_s[order])])
    return np.asarray(sums[np.searchsorted(at_s[order], edges_s, side=side)])  # type: ignore[call-overload]


def _ramp(at_s: Floats, edges_s: Floats) -> Floats:
    """Return sum_i max(0, edge - at_i) for each edge."""
    at_s = np.sort(at_s)
    sums = np.concatenate([[0.0], np.cumsum(at_s)])
    before = np.searchsorted(at_s, edges_s)
    return np.asarray(before * edges_s - sums[before])


def _capacity(pool: OnlinePool, edges_s: Floats) -> tuple[Ints, Floats]:
    """Return the number of slots by kind, and the slot time (buckets,) of all that can have been loaded by then."""
    slots = np.bincount(pool.slot_kind, minlength=len(pool.load_s))
    per_card = np.bincount(pool.slot_card, minlength=len(pool.dma_bps))
    shortest_s = float(pool.load_s.min())
    usable = np.zeros(len(edges_s) - 1)
    for n in range(1, int(per_card.max()) + 1):
        # The nth slot of a card is loaded after n loads.
        cards = int((per_card >= n).sum())
        usable += cards * np.diff(np.maximum(edges_s - n * shortest_s, 0.0))
    return slots, usable
