"""Upper bounds on the benefit, and replay of a schedule that a clairvoyant solver has found.

The bounds are linear relaxations, valid for every policy.  Time is divided into buckets.  Work may be done at any rate
up to full speed, interrupted, and split over slots, and loads take no time after the first load of each slot.  The
remaining constraints hold for every schedule of the simulator:

* a job's work is done between its arrival and the end of its window (see `windows`);
* the work in a bucket takes no more slot time than the slots that its functions fit into have.  At the start only slots
  already loaded count: all slots begin empty, and those of a card are loaded one after the other;
* a bucket moves no more bytes than the DMA engines of all cards can.

`job_bound` has variables for each job and bucket, `function_bound` for each function and bucket: it is as fast for a
million jobs, and one or two per cent higher.  `exact` adds the constraints that the former leaves out; `Clairvoyant` is
the policy that carries out its schedule.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import csr_array

from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.core.benefit.pool import Move, OnlinePool, Start
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats, Ints

# ---- A linear program, optionally with integer variables, built row by row

#: Status of `milp` when its limit is reached.
_OUT_OF_TIME = 1


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome of a search for the best integer solution."""

    #: Proven upper bound on the gain; infinite if none is known yet.
    most: float
    #: Gain of the best solution found; 0 if none was found.
    reached: float
    #: (N,) variables of that solution; empty if none was found.
    values: Floats


class Programme:
    """Maximize gain @ x, subject to least <= x <= most and the rows added by `at_most` and `exactly`."""

    def __init__(self, *, gain: Floats, most: Floats, least: ArrayLike = 0.0) -> None:
        self.gain, self.most = gain, most
        self.least = np.broadcast_to(np.asarray(least, dtype=float), gain.shape)
        #: Indices of the integer variables.
        self._whole: list[Ints] = []
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._floors: list[Floats] = []
        self._limits: list[Floats] = []
        self._height = 0

    def add(self, most: Floats, *, whole: bool = False) -> Ints:
        """Add variables with zero gain, integer ones if `whole`, and return their indices."""
        places = np.arange(len(self.gain), len(self.gain) + len(most))
        self.gain = np.concatenate([self.gain, np.zeros(len(most))])
        self.least = np.concatenate([self.least, np.zeros(len(most))])
        self.most = np.concatenate([self.most, most])
        if whole:
            self._whole += [places]
        return places

    def at_most(self, row: Ints, column: Ints, value: ArrayLike, limit: Floats) -> None:
        """Add len(limit) rows from (N,) entries: the sum of value * x[column] over a row's entries <= its limit."""
        self._add(row, column, value, np.full(len(limit), -np.inf), limit)

    def exactly(self, row: Ints, column: Ints, value: ArrayLike, wanted: Floats) -> None:
        """Add rows as `at_most` does, whose sums must be equal to `wanted`."""
        self._add(row, column, value, wanted, wanted)

    def _add(self, row: Ints, column: Ints, value: ArrayLike, floor: Floats, limit: Floats) -> None:
        self._rows.append(row + self._height)
        self._columns.append(column)
        self._values.append(np.broadcast_to(np.asarray(value, dtype=float), row.shape))
        self._floors.append(floor)
        self._limits.append(limit)
        self._height += len(limit)

    def _constraint(self) -> LinearConstraint:
        entries = (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns)))
        matrix = csr_array(entries, shape=(self._height, len(self.gain)))
        return LinearConstraint(matrix, np.concatenate(self._floors), np.concatenate(self._limits))

    def solve(self, time_limit_s: float | None = None) -> float | None:
        """Return the maximum gain, ignoring integrality; None if it is not found in time."""
        if not len(self.gain):
            return 0.0
        found = milp(
            -self.gain, constraints=self._constraint(), bounds=Bounds(self.least, self.most),
            options={} if time_limit_s is None else {"time_limit": time_limit_s},
        )  # fmt: skip
        if found.status == _OUT_OF_TIME:
            return None
        return float(-_solved(found).fun)

    def relaxed(self) -> float:
        """Return the same as `solve`, by an interior-point method: much faster if many solutions are equally good."""
        rows = self._constraint()
        equal = rows.lb == rows.ub
        found = linprog(
            -self.gain, A_ub=rows.A[~equal], b_ub=rows.ub[~equal], A_eq=rows.A[equal], b_eq=rows.ub[equal],
            bounds=np.stack([self.least, self.most], axis=1), method="highs-ipm",
        )  # fmt: skip
        return float(-_solved(found).fun)

    def search(self, gap: float, time_limit_s: float | None = None) -> Found:
        """Search for the best integer solution until its relative gap is at most `gap` or time is over."""
        whole = np.zeros(len(self.gain), np.int64)
        for places in self._whole:
            whole[places] = 1
        found = milp(
            -self.gain, constraints=self._constraint(), bounds=Bounds(self.least, self.most), integrality=whole,
            options={"mip_rel_gap": gap} | ({} if time_limit_s is None else {"time_limit": time_limit_s}),
        )  # fmt: skip
        if found.status != _OUT_OF_TIME:
            _solved(found)
        most = found.mip_dual_bound
        return Found(
            most=np.inf if most is None or not np.isfinite(most) else float(-most),
            reached=0.0 if found.fun is None else float(-found.fun),
            values=np.zeros(0) if found.x is None else found.x,
        )


def _solved(found: OptimizeResult) -> OptimizeResult:
    if found.status != 0:
        raise ValueError(f"the linear programme has no solution: {found.message}")
    return found


# ---- Bounds

#: Buckets per window of a job (the median): more than ten change the bound by less than a thousandth.
_PER_WINDOW = 10
#: Maximum number of variables for the bound per job, which then takes about ten seconds.
VARIABLES = 300_000
#: Maximum number of buckets in a program by function; a longer trace is split into several programs.
_BUCKETS = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """J jobs: the work of each, and the window in which it can be done."""

    #: (J,) index of the function; jobs that fit nowhere are left out.
    function: Ints
    work_s: Floats
    #: (J,) arrival time, and the latest time at which the job could still be running on a slot.
    from_s: Floats
    to_s: Floats
    #: (J,) time at which a job gives up if no slot is loading for it.
    give_up_s: Floats


def windows(
    pool: OnlinePool, function: ArrayLike, arrival_s: ArrayLike, work_s: ArrayLike, patience_s: ArrayLike
) -> Windows:
    """Return the windows of all jobs, (J,) each, that fit somewhere (function >= 0).

    A job gets a slot within its patience; the slot may still have to load.  Then it runs without interruption, at no
    less than the rate that it has when all slots of its card share the DMA equally: max-min fairness never gives less.
    """
    function = np.asarray(function, dtype=np.int64)
    known = function >= 0
    from_s, work_s, patience_s = (np.asarray(column, dtype=float)[known] for column in (arrival_s, work_s, patience_s))
    function = function[known]
    neighbours = np.bincount(pool.slot_card).max()
    asked_bps = np.where(pool.fits, pool.io_bps, 0.0).max(axis=0)
    slowest = np.minimum(1.0, pool.dma_bps.min() / neighbours / np.maximum(asked_bps, 1.0))
    to_s = from_s + patience_s + pool.load_s.max() + work_s / slowest[function]
    return Windows(function=function, work_s=work_s, from_s=from_s, to_s=to_s, give_up_s=from_s + patience_s)


def upper_bound(
    pool: OnlinePool, jobs: Windows, horizon_s: float, *, variables: int = VARIABLES, time_limit_s: float | None = None
) -> float:
    """Return an upper bound on the mean benefit of any schedule up to `horizon_s`, in vCPUs.

    This is the tighter bound per job if it needs at most `variables` variables and is found within the time limit,
    otherwise the bound per function.
    """
    if horizon_s <= 0 or not len(jobs.function):
        return 0.0
    edges_s = bucket_edges(jobs, horizon_s)
    if len(jobs.function) * 2 * _PER_WINDOW <= variables and len(edges_s) <= 10 * _BUCKETS:
        found = job_bound(pool, jobs, edges_s, time_limit_s)
        if found is not None:
            return found
    return function_bound(pool, jobs, edges_s)


def bucket_edges(jobs: Windows, horizon_s: float) -> Floats:
    """Return the edges of the buckets in seconds, (buckets + 1,)."""
    window_s = max(float(np.median(jobs.to_s - jobs.from_s)), 1e-9)
    return np.linspace(0.0, horizon_s, int(np.clip(_PER_WINDOW * horizon_s / window_s, 50, 20 * _BUCKETS)) + 1)


def job_bound(pool: OnlinePool, jobs: Windows, edges_s: Floats, time_limit_s: float | None = None) -> float | None:
    """Return the bound on the mean benefit between the first and the last edge; None if it is not found in time."""
    found = job_programme(pool, jobs, edges_s).programme.solve(time_limit_s)
    return None if found is None else found / float(edges_s[-1] - edges_s[0])


@dataclass(frozen=True, slots=True)
class JobProgramme:
    """The linear program with one variable per job and bucket: the work of the job done in the bucket."""

    programme: Programme
    #: (V,) bucket and function of each variable.
    bucket: Ints
    function: Ints


def job_programme(pool: OnlinePool, jobs: Windows, edges_s: Floats) -> JobProgramme:
    """Return the linear program whose optimum is the bound times the total length of the buckets."""
    count = len(edges_s) - 1
    first = np.clip(np.searchsorted(edges_s, jobs.from_s, side="right") - 1, 0, count)
    last = np.clip(np.searchsorted(edges_s, jobs.to_s, side="left"), 0, count)
    spans = np.maximum(last - first, 0)
    job = np.repeat(np.arange(len(spans)), spans)
    bucket = np.arange(len(job)) - np.repeat(np.cumsum(spans) - spans - first, spans)
    there_s = np.minimum(edges_s[bucket + 1], jobs.to_s[job]) - np.maximum(edges_s[bucket], jobs.from_s[job])
    function = jobs.function[job]

    programme = Programme(gain=pool.speedup[function], most=np.maximum(there_s, 0.0))
    programme.at_most(job, np.arange(len(job)), 1.0, jobs.work_s)
    _limit(programme, pool, edges_s, bucket, function, np.arange(len(job)))
    return JobProgramme(programme, bucket, function)


def function_bound(pool: OnlinePool, jobs: Windows, edges_s: Floats) -> float:
    """Return the bound on the mean benefit between the edges, with two variables per function and bucket."""
    parts = range(0, len(edges_s) - 1, _BUCKETS)
    total = sum(_functions_part(pool, jobs, edges_s[first : first + _BUCKETS + 1]) for first in parts)
    return total / float(edges_s[-1] - edges_s[0])


def _functions_part(pool: OnlinePool, jobs: Windows, edges_s: Floats) -> float:
    """Return an upper bound on the vCPU-seconds gained between the edges.

    The variables per function and bucket are y, the work done in the bucket, and Z, all work done or given up so far.
    Z lies between the work whose windows have ended and the work that has arrived, and Z[k] >= Z[k-1] + y[k].
    """
    functions, count = len(pool.functions), len(edges_s) - 1
    low, high, there_s = _supply(jobs, functions, edges_s)
    size = functions * count
    function, bucket = np.divmod(np.arange(size), count)
    programme = Programme(
        gain=np.concatenate([np.repeat(pool.speedup, count), np.zeros(size)]),
        least=np.concatenate([np.zeros(size), low.ravel()]),
        most=np.concatenate([there_s.ravel(), high.ravel()]),
    )
    rows = np.arange(size)
    later = bucket > 0
    programme.at_most(
        np.concatenate([rows, rows, rows[later]]),
        np.concatenate([rows, size + rows, size + rows[later] - 1]),
        np.concatenate([np.ones(size), -np.ones(size), np.ones(int(later.sum()))]),
        np.zeros(size),
    )
    _limit(programme, pool, edges_s, bucket, function, rows)
    found = programme.solve()
    return np.inf if found is None else found


def _supply(jobs: Windows, functions: int, edges_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Return (F, buckets) each: work whose window has ended by a bucket's end, work arrived by then, most work in it.

    Only jobs whose windows overlap the buckets count.  A job progresses by at most one second per second.
    """
    low, high, there_s = (np.zeros((functions, len(edges_s) - 1)) for _ in range(3))
    inside = (jobs.to_s > edges_s[0]) & (jobs.from_s < edges_s[-1])
    for f in range(functions):
        mine = inside & (jobs.function == f)
        work_s, from_s, to_s = jobs.work_s[mine], jobs.from_s[mine], jobs.to_s[mine]
        low[f] = _summed(to_s, work_s, edges_s[1:])
        high[f] = _summed(from_s, work_s, edges_s[1:])
        # Rounding must not reduce the possible work below the work done.
        there_s[f] = np.maximum(np.diff(_ramp(from_s, edges_s) - _ramp(to_s, edges_s)), 0.0) * (1 + 1e-9) + 1e-9
    return low, np.maximum(low, high), there_s


def _summed(at_s: Floats, work_s: Floats, edges_s: Floats) -> Floats:
    """Return for each edge the total work of the jobs whose time is at or before it."""
    order = np.argsort(at_s, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(work_s[order])])
    return np.asarray(sums[np.searchsorted(at_s[order], edges_s, side="right")])


def _ramp(at_s: Floats, edges_s: Floats) -> Floats:
    """Return sum_i max(0, edge - at_i) for each edge."""
    at_s = np.sort(at_s)
    sums = np.concatenate([[0.0], np.cumsum(at_s)])
    before = np.searchsorted(at_s, edges_s)
    return np.asarray(before * edges_s - sums[before])


def _limit(
    programme: Programme, pool: OnlinePool, edges_s: Floats, bucket: Ints, function: Ints, variable: Ints
) -> None:
    """Limit the (V,) work variables, given with bucket and function, by slot time and DMA bandwidth."""
    length_s = np.diff(edges_s)
    slots = np.bincount(pool.slot_kind, minlength=len(pool.load_s))
    for kinds in np.unique(pool.fits.T, axis=0):
        confined = ~(pool.fits.T & ~kinds).any(axis=1)
        mine = confined[function]
        programme.at_most(bucket[mine], variable[mine], 1.0, length_s * slots[kinds].sum())
    programme.at_most(bucket, variable, 1.0, _loaded_s(pool, edges_s))
    least_bps = np.where(pool.fits, pool.io_bps, np.inf).min(axis=0)
    # In units of the bandwidth of all DMA engines: coefficients near 1 suit the solver.
    share = np.where(np.isfinite(least_bps), least_bps, 0.0) / pool.dma_bps.sum()
    programme.at_most(bucket, variable, share[function], length_s)


def _loaded_s(pool: OnlinePool, edges_s: Floats) -> Floats:
    """Return the slot time in each bucket, (buckets,), of the slots that can have been loaded by then."""
    per_card = np.bincount(pool.slot_card, minlength=len(pool.dma_bps))
    usable_s = np.zeros(len(edges_s) - 1)
    for n in range(1, int(per_card.max()) + 1):
        # The nth slot of a card is loaded after n loads.
        cards = int((per_card >= n).sum())
        usable_s += cards * np.diff(np.maximum(edges_s - n * float(pool.load_s.min()), 0.0))
    return usable_s


# ---- Replay of a schedule

#: Moves may be made this many seconds early, because a job may give up exactly at its planned start.
_EARLY_S = 1e-6


@dataclass(frozen=True, slots=True)
class Action:
    """A timed action of a slot: load a function, or run the job that has waited longest for the function."""

    begin_s: float
    move: Move


class Clairvoyant:
    """A policy that makes each planned move at its time, or as soon afterwards as possible; for one run over one trace.

    A slot may be late if times of the plan were rounded down.  A start for which no job has arrived by `patience_s`
    after its time is dropped.
    """

    name = "exact"

    def __init__(self, actions: Iterable[Action], patience_s: float) -> None:
        self._patience_s = patience_s
        self._left: dict[int, deque[Action]] = defaultdict(deque)
        for action in sorted(actions, key=lambda action: action.begin_s):
            self._left[action.move.slot].append(action)

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next possible move whose time has come."""
        for left in self._left.values():
            while left and left[0].begin_s <= now_s + _EARLY_S:
                action = left[0]
                if _possible(view, action.move):
                    return left.popleft().move
                gone = isinstance(action.move, Start) and not view.waiting[action.move.function]
                if not (gone and now_s > action.begin_s + self._patience_s):
                    break
                left.popleft()
        return None


def _possible(view: Occupancy, move: Move) -> bool:
    """Return whether a move can be made now."""
    slot, held = move.slot, view.holds[move.slot]
    idle = slot in view.idle[view.kind[slot]][held]
    if isinstance(move, Start):
        return idle and held == move.function and bool(view.waiting[move.function])
    stops = view.job[slot] >= 0 and view.preemptible[held] and view.progress_kept[held]
    return (idle or stops) and not view.port_busy[view.card[slot]]
