"""Proven lower bounds on the makespan of a batch: no plan can be shorter."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.fluid import seconds_per_bit
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: Number of steps of the price ascent, and the first and last step length (relative change of a price per relative
#: overload); lengths fall geometrically.  The bound is within 0.1 % of the linear program on the workload of the
#: makespan paper, 5.2, with accelerator speeds up to 25 times apart, and within 1 % if each runs one of four functions.
_STEPS = 80
_STEP_LENGTHS = (1.0, 0.004)
#: The ascent samples jobs so that it evaluates at most about this many job-accelerator pairs; the bound uses all pairs.
_ASCENT_PAIRS = 400_000
#: The ascent uses at least this many jobs per accelerator, which is affordable because its loop is compiled.
_ROWS_PER_PRICE = 2
#: Prices do not fall below this share of the even price, so that they can rise again.
_LEAST_PRICE = 1e-9
#: Pairs per block if all pairs are evaluated; limits memory.
_BLOCK_PAIRS = 4_000_000
#: Pairs per block whose intermediate results fit in a processor's cache, and the fewest rows worth a block.
_CACHED_PAIRS, _LEAST_ROWS = 32_768, 64
#: Most release times tried as the start of a busy period of a link; any subset gives a valid bound.
_RELEASES = 64
#: Relative tolerance of comparisons, far above rounding errors.
_ROUNDING = 1e-9
#: Search for the backlog bound: doublings of the upper limit before giving up (numbers close to the range of floats),
#: and bisection steps.  The result is lowered by `_ROUNDING`.
_DOUBLINGS, _HALVINGS = 60, 40


@dataclass(frozen=True, slots=True, eq=False)
class LowerBound:
    """A bound, and the prices that prove it if it is the compute bound and the plan format's formula yields it."""

    seconds: float
    #: (A,) or empty.
    prices: Floats = field(default_factory=lambda: floats([]))


@dataclass(frozen=True, slots=True, eq=False)
class ComputeBound:
    """The bound by the work of all accelerators together."""

    seconds: float
    #: (A,) the prices that prove it.
    prices: Floats
    #: Value of the plan format's formula for these prices: sum_i min_j y_j e_ij + sum_j y_j ready_j.
    formula_s: float


def lower_bound(problem: BatchProblem, at_most_s: float = np.inf) -> LowerBound:
    """Return the largest of all bounds; only the simple bound if that already proves `at_most_s` optimal.

    `at_most_s` is the makespan of a known plan (inf = none); accelerators where a job would end later are ignored.
    """
    bound = simple_bound(problem)
    if not problem.jobs or bound.seconds >= at_most_s * (1 - _ROUNDING):
        return bound
    return raised_by_backlog(problem, raised(problem, bound, compute_bound(problem, at_most_s)))


def simple_bound(problem: BatchProblem) -> LowerBound:
    """Return the larger of the bounds by single jobs and by links, which do not need prices."""
    return LowerBound(max(job_path_s(problem), links_s(problem)) if problem.jobs else 0.0)


def raised(problem: BatchProblem, bound: LowerBound, compute: ComputeBound) -> LowerBound:
    """Return the larger of `bound` and the compute bound."""
    if compute.seconds <= bound.seconds:
        return bound
    # The plan format's formula is no bound if an accelerator with a price is ready only after T and may stay unused.
    is_late = (problem.ready_s[compute.prices > 0] > compute.seconds).any()
    if is_late or compute.formula_s < compute.seconds * (1 - _ROUNDING):
        return LowerBound(compute.seconds)
    return LowerBound(compute.seconds, floats(compute.prices))


def raised_by_backlog(problem: BatchProblem, bound: LowerBound) -> LowerBound:
    """Return the larger of `bound` and the bound by the backlog of responders."""
    least_s = backlog_bound_s(problem, _must_be_sent(problem), bound.seconds)
    return LowerBound(least_s) if least_s > bound.seconds else bound


def job_path_s(problem: BatchProblem) -> float:
    """Return the bound by the longest single job: the later of transfer and slot preparation, then compute."""
    if not (problem.ready_s.any() or problem.load_s.any()) and (np.diff(problem.responder) >= 0).all():
        return _job_path_by_responder_s(problem)
    s_per_bit = seconds_per_bit(problem, np.arange(len(problem.ingress_bps)))
    moves = bool(s_per_bit.any() and problem.input_bytes.any())
    rows = max(1, _BLOCK_PAIRS // max(1, problem.accelerators))
    bound_s = 0.0
    for begin in range(0, problem.jobs, rows):
        block = slice(begin, begin + rows)
        ready_s: Floats = problem.ready_s[None, :]
        if problem.load_s.any():
            began_s = np.where(problem.ready_s > 0.0, problem.ready_s, -problem.head_start_s)
            loaded_s = np.maximum(began_s + problem.load_s, problem.ready_s)
            ready_s = np.where(problem.function[block, None] != problem.loaded, loaded_s, ready_s)
        if moves:
            sends_s = 8.0 * problem.input_bytes[block, None] * s_per_bit[problem.requester[block]]
            ready_s = np.maximum(ready_s, (problem.release_s[block, None] + sends_s)[:, problem.responder])
        elif problem.release_s.any():
            ready_s = np.maximum(ready_s, problem.release_s[block, None])
        bound_s = max(bound_s, float((ready_s + problem.seconds[block]).min(axis=1).max(initial=0.0)))
    return bound_s


def _job_path_by_responder_s(problem: BatchProblem) -> float:
    """Return `job_path_s` if the accelerators of a responder are adjacent columns and differ only in `seconds`."""
    hosts, first = np.unique(problem.responder, return_index=True)
    s_per_bit = seconds_per_bit(problem, hosts)
    if not (s_per_bit.any() and problem.input_bytes.any()):
        return float((problem.release_s + problem.seconds.min(axis=1)).max(initial=0.0))
    rows, bound_s = max(_LEAST_ROWS, _CACHED_PAIRS // problem.accelerators), 0.0
    for begin in range(0, problem.jobs, rows):
        block = slice(begin, begin + rows)
        sends_s = 8.0 * problem.input_bytes[block, None] * s_per_bit[problem.requester[block]]
        ends_s = problem.release_s[block, None] + sends_s + _least_by_responder_s(problem.seconds[block], first)
        bound_s = max(bound_s, float(ends_s.min(axis=1).max()))
    return bound_s


def _least_by_responder_s(seconds: Floats, first: Ints) -> Floats:
    """Return (n, hosts) the minimum over the columns of each responder, which begin at `first` (hosts,)."""
    slots = seconds.shape[1] // len(first)
    if not np.array_equal(first, np.arange(0, seconds.shape[1], slots)):
        least_s: Floats = np.minimum.reduceat(seconds, first, axis=1)
        return least_s
    # If all have the same number of columns, whole columns are compared, which is several times faster.
    least_s = seconds[:, ::slots].copy()
    for slot in range(1, slots):
        np.minimum(least_s, seconds[:, slot::slots], out=least_s)
    return least_s


def links_s(problem: BatchProblem) -> float:
    """Return the bound by the egress of each requester, and by the ingress of all responders together.

    Only jobs that cannot run on the host that sends their input count; the others might not use the network.
    """
    if not (np.isfinite(problem.egress_bps).any() or np.isfinite(problem.ingress_bps).any()):
        return 0.0
    jobs = _must_be_sent(problem)
    if len(jobs) == 0:
        return 0.0
    tail_s = problem.seconds.min(axis=1)[jobs]
    ingress_bps = problem.ingress_bps[np.unique(problem.responder)].sum(keepdims=True)
    everywhere = np.zeros(len(jobs), np.int64)
    return max(
        _links_s(problem, jobs, tail_s, problem.requester[jobs], problem.egress_bps),
        _links_s(problem, jobs, tail_s, everywhere, ingress_bps),
    )


def _must_be_sent(problem: BatchProblem) -> Ints:
    """Return the jobs with input that cannot run on the host that sends it."""
    return np.flatnonzero((problem.input_bytes > 0) & ~_may_stay_local(problem))


def _may_stay_local(problem: BatchProblem) -> NDArray[np.bool_]:
    """Return (J,) whether some accelerator on the host that sends the job can run it."""
    local = problem.local_host[problem.requester]
    may = np.zeros(problem.jobs, np.bool_)
    for responder in np.unique(local[local >= 0]).tolist():
        jobs = np.flatnonzero(local == responder)
        slots = np.flatnonzero(problem.responder == responder)
        may[jobs] = np.isfinite(problem.seconds[np.ix_(jobs, slots)]).any(axis=1)
    return may


def _links_s(problem: BatchProblem, jobs: Ints, tail_s: Floats, link: Ints, limit_bps: Floats) -> float:
    """Return the bound by links, where each of `jobs` must cross the link in `link` (n,).

    The transfers of any set of jobs begin no earlier than its first release and keep the link busy for the sum of their
    bits; the job whose transfer ends last still has to compute.  The best sets are, per release time, the jobs released
    then or later that have the longest tails (Jackson's rule).
    """
    release_s = problem.release_s[jobs]
    begins_s = np.unique(release_s)
    order = np.lexsort((-tail_s, link))
    bound_s = 0.0
    for begin_s in begins_s[:: -(-len(begins_s) // _RELEASES)].tolist():
        late = order[release_s[order] >= begin_s]
        sent_s = np.cumsum(8.0 * problem.input_bytes[jobs[late]] / limit_bps[link[late]])
        first = np.flatnonzero(np.diff(link[late], prepend=-1))
        # The sums before the first job of a link belong to other links.
        before_s = np.append(0.0, sent_s)[first]
        sent_s -= np.repeat(before_s, np.diff(first, append=len(late)))
        bound_s = max(
            bound_s, begin_s + float((sent_s + tail_s[late])[np.isfinite(limit_bps[link[late]])].max(initial=0.0))
        )
    return bound_s


def compute_bound(problem: BatchProblem, at_most_s: float = np.inf) -> ComputeBound:
    """Return the bound by the work of all accelerators together.

    For any prices y >= 0 of sum 1, sum_i min_j y_j e_ij <= sum_j y_j (work on j), and the work on j is at most
    max(0, T - ready_j).  The bound is the least T for which that can hold.  This is the dual of CIM-LP (makespan paper,
    3.1 and 1a' in 3.4); the sets E_j(T) of jobs that can end on j in time are taken at T = `at_most_s`.
    """
    pairs = max(_ASCENT_PAIRS, _ROWS_PER_PRICE * problem.accelerators**2)
    step = -(-problem.seconds.size // pairs)
    sample = _usable(problem, problem.seconds[::step], at_most_s)
    slots = np.flatnonzero(np.isfinite(sample).any(axis=0))
    share = len(sample) / problem.jobs
    prices = np.zeros(problem.accelerators)
    prices[slots] = _ascend(np.ascontiguousarray(sample[:, slots]) / share, problem.ready_s[slots])
    usable_s, any_s = _priced_work_s(problem, prices, at_most_s)
    formula_s = any_s + float((prices * problem.ready_s).sum())
    return ComputeBound(_least_s(usable_s, prices, problem.ready_s), prices, formula_s)


def _ascend(seconds: Floats, ready_s: Floats) -> Floats:
    """Return the best prices found by a short multiplicative ascent, which raises those of overloaded accelerators.

    `seconds` (n, a) is inf if a job cannot run, with at least one finite value in each row and column; accelerators
    become free at `ready_s` (a,).
    """
    slots = seconds.shape[1]
    prices = np.full(slots, 1.0 / slots)
    best, best_s = prices, -1.0
    for length in np.geomspace(*_STEP_LENGTHS, _STEPS).tolist():
        cheapest, chosen_s = _cheapest(seconds, prices)
        bound_s = _least_s(float((chosen_s * prices[cheapest]).sum()), prices, ready_s)
        if bound_s > best_s:
            best, best_s = prices, bound_s
        if bound_s == 0.0:
            break
        finish_s = np.bincount(cheapest, chosen_s, slots) + np.minimum(ready_s, bound_s)
        overload = np.clip(finish_s / bound_s - 1.0, -1.0, 2.0)
        prices = np.maximum(prices * np.exp(length * overload), _LEAST_PRICE / slots)
        prices = prices / prices.sum()
    return best


def _cheapest(seconds: Floats, prices: Floats) -> tuple[Ints, Floats]:
    """Return for each row the column with the smallest seconds * price, and its seconds; all prices are positive."""
    from fpga_pool.core.makespan.kernels import loops

    column, there_s = np.empty(len(seconds), np.int64), np.empty(len(seconds))
    loops.cheapest(seconds, prices, column, there_s)
    return column, there_s


def _least_s(work_s: float, prices: Floats, ready_s: Floats) -> float:
    """Return the least T with sum_j y_j max(0, T - ready_j) >= `work_s`."""
    if work_s <= 0.0:
        return 0.0
    order = np.argsort(ready_s, kind="stable")
    order = order[prices[order] > 0]
    # With the first k accelerators in use, T = (work + sum y ready) / sum y; the smallest of these is the solution.
    priced = np.cumsum(prices[order])
    return float(((work_s + np.cumsum(prices[order] * ready_s[order])) / priced).min())


def _priced_work_s(problem: BatchProblem, prices: Floats, at_most_s: float) -> tuple[float, float]:
    """Return sum_i min_j y_j e_ij over the accelerators where a job ends by `at_most_s`, and over all of them."""
    from fpga_pool.core.makespan.kernels import loops

    usable_s, any_s = loops.priced_work(
        problem.seconds, np.array(prices), np.array(problem.ready_s), at_most_s * (1 + _ROUNDING)
    )
    return float(usable_s), float(any_s)


def _usable(problem: BatchProblem, seconds: Floats, at_most_s: float) -> Floats:
    """Return the given rows of `seconds`, with inf if the job would end after `at_most_s`."""
    if np.isinf(at_most_s):
        return seconds
    return np.where(seconds + problem.ready_s > at_most_s * (1 + _ROUNDING), np.inf, seconds)


# ---- Lower bound by the backlog of responders: inputs that have arrived, in part or completely, and are not computed.

# A job computes only after its whole input has arrived.  While its b bits arrive at a rate of at most r, and while it
# computes for e seconds, the responder holds b / 2 of them on average.  So the job contributes at least
# b^2 / (2 r) + b e / 2 to the backlog, in bits times seconds, wherever and whenever it runs.
#
# In a plan that ends at T, let L be the bits that a responder receives in total, B the limit of its ingress, and P the
# most bits per second that its slots compute.  At t it has received at most B t, and at most P (T - t) remain to be
# computed, of which at least L - B t have yet to arrive.  So the responder holds at most
#
#     min{ B t,  P (T - t),  P (T - t) - (L - B t) }.
#
# The bound is the smallest T for which the L of all responders can add up to all bits that must be sent, and the areas
# under that minimum to the backlog of all jobs.  It exceeds the bound by links if slots compute hardly faster than
# inputs arrive.


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def backlog_bound_s(problem: BatchProblem, jobs: Ints, at_least_s: float) -> float:
    """Return the larger of `at_least_s` and the backlog bound of `jobs` (n,), all of which must be sent to a responder.

    Each job has bits to send.  The bound does not apply if ingress is unlimited or compute takes no time.
    """
    ingress_bps = np.zeros(len(problem.ingress_bps))
    hosts = np.unique(problem.responder)
    ingress_bps[hosts] = problem.ingress_bps[hosts]
    if len(jobs) == 0 or not np.isfinite(ingress_bps).all():
        return at_least_s
    bits = floats(8.0 * problem.input_bytes[jobs])
    least_s, slot_bps = _considered(problem, jobs, bits)
    compute_bps = floats(np.bincount(problem.responder, slot_bps, len(ingress_bps)))
    if not np.isfinite(compute_bps).all():
        return at_least_s
    best_bps = np.minimum(problem.egress_bps[problem.requester[jobs]], ingress_bps.max())
    needed = float((bits * (bits / best_bps + least_s)).sum() / 2)
    used = (ingress_bps > 0) & (compute_bps > 0)
    responders = _Responders(ingress_bps[used], compute_bps[used], float(bits.sum()), needed)
    begin_s = float(problem.release_s[jobs].min())
    low_s = max(at_least_s - begin_s, 0.0)
    if responders.can_end_by(low_s):
        return at_least_s
    high_s = max(low_s, responders.sent_s)
    for _ in range(_DOUBLINGS):
        if responders.can_end_by(high_s):
            break
        low_s, high_s = high_s, 2 * high_s
    else:
        return at_least_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if responders.can_end_by(middle_s) else (middle_s, high_s)
    return max(at_least_s, begin_s + low_s * (1 - _ROUNDING))


def _considered(problem: BatchProblem, jobs: Ints, bits: Floats) -> tuple[Floats, Floats]:
    """Return (n,) the smallest seconds of each job, and (A,) the most bits per second an accelerator computes."""
    least_s, slot_bps = np.empty(len(jobs)), np.zeros(problem.accelerators)
    rows = max(1, _CACHED_PAIRS // problem.accelerators)
    for begin in range(0, len(jobs), rows):
        block = slice(begin, begin + rows)
        seconds = problem.seconds[jobs[block]]
        least_s[block] = seconds.min(axis=1)
        np.maximum(slot_bps, (bits[block, None] / seconds).max(axis=0), out=slot_bps)
    return least_s, slot_bps


class _Responders:
    """Tells whether all bits can be received and computed by a given time, according to the backlog bound."""

    def __init__(self, ingress_bps: Floats, compute_bps: Floats, bits: float, needed: float) -> None:
        self._bits, self._needed = bits, needed
        # At the rate `even_bps`, receiving all bits and computing them afterwards would take until T.  Up to this rate
        # the bits yet to arrive do not limit the backlog.  Above it the backlog shrinks, equally for each responder if
        # all receive the same multiple of it.
        even_bps = ingress_bps * compute_bps / (ingress_bps + compute_bps)
        least_bps = np.minimum(ingress_bps, compute_bps)
        order = np.argsort(least_bps / even_bps)
        self._ingress_bps, self._compute_bps = ingress_bps[order], compute_bps[order]
        self._even_bps, self._least_bps = even_bps[order], least_bps[order]
        self._multiple = self._least_bps / self._even_bps
        # (H,) the total rate if each responder receives this multiple, capped by the most that it can handle.
        even_left_bps = self._even_bps.sum() - np.cumsum(self._even_bps)
        self._received_bps = np.cumsum(self._least_bps) + self._multiple * even_left_bps
        self._full_bps = np.append(0.0, np.cumsum(self._least_bps))
        self._left_bps = np.append(self._even_bps.sum(), even_left_bps)

    @property
    def sent_s(self) -> float:
        """The shortest time in which all bits can be received and computed, ignoring the backlog."""
        return self._bits / float(self._least_bps.sum())

    def can_end_by(self, end_s: float) -> bool:
        """Return whether the largest possible backlog of all responders suffices to end by `end_s`."""
        if end_s <= 0.0 or end_s < self.sent_s:
            return False
        multiple = max(1.0, self._multiple_of(self._bits / end_s))
        received: NDArray[np.float64] = end_s * np.minimum(multiple * self._even_bps, self._least_bps)
        # The largest possible backlog rises at the ingress rate until computing has to begin, and falls at the compute
        # rate once all bits may have arrived.
        rising_s = np.maximum(end_s - received / self._compute_bps, 0.0)
        falling_s = np.maximum(end_s - received / self._ingress_bps, 0.0)
        peak, other = self._ingress_bps * rising_s, self._compute_bps * falling_s
        between_s = np.maximum(end_s - rising_s - falling_s, 0.0)
        area = (peak * rising_s + (peak + other) * between_s + other * falling_s).sum() / 2
        return bool(area >= self._needed)

    def _multiple_of(self, bps: float) -> float:
        """Return the multiple of their even rates at which all responders together receive `bps`."""
        full = int(np.searchsorted(self._received_bps, bps))
        if full >= len(self._multiple) or self._left_bps[full] <= 0.0:
            return float(self._multiple[-1])
        return float((bps - self._full_bps[full]) / self._left_bps[full])
