"""Batches that compute and transmit, planned in reversed time, from the end to the start.

In reversed time a job computes first and sends afterwards.  Accelerators never wait for the network, so a placement and
an order determine when each input may begin to move.  What remains is a fluid problem with release times, in which the
host with the most to send goes first.  In forward time, each input of the same plan arrives just when its job starts.

If a link has to end at T, its last k jobs need it for the sum of their bits, so the job before them must be released
that long before T.  These are the due times (Jackson's rule); `spread` places each job on the cheapest accelerator that
meets its due time.  Links must not idle at the beginning either, so small jobs should be first (Johnson's rule for two
machines); but the largest must be released long before the end.  So each queue is ordered by Smith's rule: from its end
backwards, the longest job that is not late there.  Responders that compute hardly faster than they receive idle
nevertheless, and get less work.  The best placements are then improved by local search (`local_search`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.fluid import Segments, Transfers, moving_flows, share
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.makespan.search.local_search import LocalOptimum, LocalSearch
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Steps of the price ascent.
_PRICE_STEPS = 60
#: Target makespans relative to the bound.
_TARGETS = (1.0, 1.04)
#: Shares of the jobs of each size that come after the largest; None = order by due time alone.
_AFTERWARDS = (None, 0.2)
#: Number of ingress distributions per target and order, and the strength of each correction towards equal ends.
_SHIFTS, _SHIFT = 6, 0.5
#: Factor on the minimum time before the end of the plan by which a job has to be released.
_EARLY = 1.3
#: Target at which placements are compared, relative to the bound.
_COMPARED = 1.05
#: Jobs that count as one size; and a factor on the times at which jobs would compute, in order of size, without idling.
_OF_A_SIZE, _STRETCH = 10, 1.1
#: Placements that are improved, changes per round, and shares of the way to the bound that successive rounds aim at.
_SEARCHED, _CHANGES, _AMBITIONS = 2, 1000, (0.3, 0.3, 0.2, 0.2, 0.1, 0.1, 0.05)
#: Changes between two checks of the clock if time is limited.
_CHANGES_PER_LOOK = 40
#: Rounds after which only the best placement is improved, and the share of the time for placements if it is limited.
_ROUNDS, _PLACING = 3, 0.2
#: Simulating the flows of a reversed plan takes up to this many times as long as of a forward plan: more flows wait.
_FOLLOWING = 10
#: Minimum relative reduction of a plan's estimated length for which its flows are simulated again.
_SHORTER = 5e-3
#: Lengths with a smaller relative difference than this are equal.
_SAME = 1e-9
#: Work to try one change, in job-accelerator pairs per job of a responder.
_PAIRS_PER_CHANGE = 250
#: Rounds without success that end the search.
_PATIENCE = 60


@dataclass(frozen=True, slots=True, eq=False)
class Reversed:
    """A plan made in reversed time: accelerators (J,), jobs in order of start (J,), transfers, and its length."""

    accelerator: Ints
    order: Ints
    transfers: Transfers
    length_s: float


@dataclass(slots=True, eq=False)
class _Candidate:
    """A placement under improvement, its best version, and its estimate when its flows were last simulated."""

    placed: LocalOptimum
    best: LocalOptimum
    followed_s: float = np.inf

    def change(self, placed: LocalOptimum) -> bool:
        """Continue with the result of a local search; return whether it is the best so far."""
        self.placed = placed
        better = placed.estimate_s < self.best.estimate_s
        if better:
            self.best = placed
        return better


def can_reverse(problem: BatchProblem) -> bool:
    """Return whether reversed time applies: no job has to wait for a release, a load or another group."""
    waits = problem.release_s.any() or problem.load_s.any() or (problem.group != problem.group[:1]).any()
    return not waits


class ReversedSearch:
    """Yields plans made in reversed time, each shorter than the ones before.

    If time is limited, the time to reserve for simulating the flows of the last plan is estimated from `forwards_s`,
    the seconds that simulating the flows of a forward plan took.
    """

    def __init__(
        self,
        problem: BatchProblem,
        bound_s: float,
        budget: Budget,
        rng: np.random.Generator,
        forwards_s: float = 0.0,
    ) -> None:
        from fpga_pool.core.makespan.kernels import joint

        self._problem, self._bound_s, self._budget = problem, bound_s, budget
        #: Seconds that simulating the flows of a plan takes.
        self._following_s = _FOLLOWING * forwards_s
        self._state = rng.integers(1, 2**63, 1, np.uint64)
        self._local_search = LocalSearch(problem)
        self._bits = np.asarray(8.0 * problem.input_bytes, np.float64)
        self._requester, self._responder = np.array(problem.requester), np.array(problem.responder)
        self._local_host = np.array(problem.local_host)
        self._egress_s_per_bit, self._ingress_s_per_bit = 1.0 / problem.egress_bps, 1.0 / problem.ingress_bps
        self._fastest_s = problem.seconds.min(axis=1)
        self._prices = np.ones(problem.accelerators + len(problem.ingress_bps))
        joint.price(problem.seconds, self._responder, self._bits, self._ingress_s_per_bit, _PRICE_STEPS, self._prices)
        self._prices = np.maximum(self._prices, 1e-3 / len(self._prices))
        budget.spend(_PRICE_STEPS * problem.seconds.size)

    def run(self, at_most_s: float) -> Iterator[Reversed]:
        """Yield plans shorter than `at_most_s` and than those yielded before, until the budget is spent."""
        # Only a budget of time is divided between placing and improving.
        placing = self._budget.part(_PLACING) if self._budget.is_timed else self._budget
        compared_s = _COMPARED * self._bound_s
        placements = sorted(self._placements(placing), key=lambda placed: placed.excess_s(compared_s))
        pool = [_Candidate(placed, placed) for placed in placements[:_SEARCHED]]
        idle, turn = 0, 0
        while pool and at_most_s > self._bound_s * (1 + _SAME):
            if turn == _ROUNDS * _SEARCHED:
                pool = [min(pool, key=lambda entry: entry.best.estimate_s)]
            entry = pool[turn % len(pool)]
            idle += 1
            last = idle > _PATIENCE or (turn > 0 and not self._may_go_on())
            if last:
                entry = min(pool, key=lambda entry: entry.best.estimate_s)
            elif turn >= len(pool) and entry.change(self._improved(entry.placed, turn // len(pool))):
                idle = 0
            turn += 1
            estimate_s = entry.best.estimate_s
            at_bound = estimate_s <= self._bound_s * (1 + _SAME)
            enough_s = entry.followed_s if last or at_bound else min(entry.followed_s * (1 - _SHORTER), at_most_s)
            if estimate_s < enough_s and (last or at_bound or self._may_follow_twice()):
                entry.followed_s = estimate_s
                found = self._evaluate(entry.best)
                if found.length_s < at_most_s:
                    at_most_s = found.length_s
                    yield found
            if last:
                break

    def _improved(self, placed: LocalOptimum, turn: int) -> LocalOptimum:
        placed = placed.copy()
        ambition = _AMBITIONS[min(turn, len(_AMBITIONS)) - 1]
        target_s = placed.estimate_s - (placed.estimate_s - self._bound_s) * ambition
        problem, timed = self._problem, self._budget.is_timed
        changes = _CHANGES_PER_LOOK if timed else _CHANGES
        for _ in range(0, _CHANGES, changes):
            self._local_search.local_search(placed, target_s, changes, self._state)
            self._budget.spend(changes * _PAIRS_PER_CHANGE * problem.jobs / len(problem.ingress_bps))
            if timed and not self._may_go_on():
                break
        return placed

    def _may_go_on(self) -> bool:
        """Return whether the search may continue and leave time to simulate the flows of the last plan."""
        return self._budget.allows() and self._budget.left_s > self._following_s

    def _may_follow_twice(self) -> bool:
        """Return whether the time left suffices to simulate the flows of a plan now and of the last plan later."""
        return self._budget.left_s > 2 * self._following_s

    def _placements(self, budget: Budget) -> Iterator[LocalOptimum]:
        """Yield placements for several targets, orders, prices and caps of ingress.

        Small jobs at the beginning keep ingress busy from the start, but large ones must be released early enough.  So
        each slot computes last the longest job whose due time allows it.  If computing is hardly faster than sending,
        ingress idles longer and the responder ends late, so it gets less and the others get more.
        """
        from fpga_pool.core.makespan.kernels import joint

        problem, requesters, hosts = self._problem, len(self._problem.egress_bps), np.unique(self._responder)
        due_s = (1 - _EARLY) * self._bound_s + _EARLY * self._due_s(self._bound_s)
        for target_s, spread_due_s, sequence in self._sequences():
            cap_s = np.full(len(problem.ingress_bps), target_s)
            for shift in range(_SHIFTS):
                if not budget.allows():
                    return
                accelerator = np.zeros(problem.jobs, np.int64)
                joint.spread(
                    problem.seconds, sequence, self._requester, self._responder, self._bits, self._ingress_s_per_bit,
                    spread_due_s, self._local_host, target_s - problem.ready_s, self._prices, cap_s,
                    np.zeros(problem.accelerators), np.zeros(len(problem.ingress_bps)), accelerator,
                )  # fmt: skip
                budget.spend(problem.seconds.size + 200 * problem.jobs)
                if shift == 0:
                    yield self._local_search.start(accelerator, sequence)
                release_s = np.zeros(problem.jobs)
                joint.longest_last(problem.seconds, accelerator, due_s, release_s)
                placed = self._local_search.start(accelerator, np.argsort(release_s, kind="stable"))
                yield placed
                cap_s[hosts] *= _slower(placed.queues.link_end_s[requesters:][hosts])

    def _sequences(self) -> Iterator[tuple[float, Floats, Ints]]:
        """Yield target makespans, the resulting due times (J,), and an order (J,)."""
        for afterwards in _AFTERWARDS:
            for target in _TARGETS:
                due_s = self._due_s(target * self._bound_s)
                yield target * self._bound_s, due_s, self._sequence(due_s, afterwards)

    def _sequence(self, due_s: Floats, afterwards: float | None) -> Ints:
        """Return (J,) the jobs in the order in which they compute in reversed time.

        If `afterwards` is None, they are ordered by due time.  Otherwise small jobs come first, except for a share
        `afterwards` of each size, from the requesters with the least to send, which follow the largest jobs with the
        smallest last; and no job is ordered later than its due time.
        """
        if afterwards is None:
            return np.argsort(due_s, kind="stable")
        problem, seconds = self._problem, self._fastest_s
        egress_s = np.bincount(problem.requester, self._bits) / problem.egress_bps[: int(problem.requester.max()) + 1]
        by_size = np.argsort(seconds, kind="stable")
        size = np.empty(problem.jobs, np.int64)
        size[by_size] = np.arange(problem.jobs) // _OF_A_SIZE
        among = np.empty(problem.jobs, np.int64)
        among[np.lexsort((egress_s[problem.requester], size))] = np.arange(problem.jobs) % _OF_A_SIZE
        late = among[by_size] < afterwards * _OF_A_SIZE
        first, last = by_size[~late], by_size[late]
        about_s = np.empty(problem.jobs)
        about_s[first] = np.cumsum(seconds[first]) / problem.accelerators
        about_s[last] = (seconds.sum() - np.cumsum(seconds[last])) / problem.accelerators
        return np.argsort(np.minimum(_STRETCH * about_s, due_s), kind="stable")

    def _due_s(self, target_s: float) -> Floats:
        """Return (J,) the due time by which each job must be released because of its requester's egress."""
        problem = self._problem
        by_size = np.argsort(self._fastest_s, kind="stable")[::-1]
        by_link = by_size[np.argsort(problem.requester[by_size], kind="stable")]
        link = problem.requester[by_link]
        sent_s = np.cumsum(self._bits[by_link] * self._egress_s_per_bit[link])
        first = np.flatnonzero(np.diff(link, prepend=-1))
        before_s = np.append(0.0, sent_s)[first]
        due_s = np.empty(problem.jobs)
        due_s[by_link] = target_s - (sent_s - np.repeat(before_s, np.diff(first, append=len(link))))
        return due_s

    def _evaluate(self, placed: LocalOptimum) -> Reversed:
        """Return the plan of a placement after simulating how all its flows share the network."""
        problem, left_s = self._problem, self._budget.left_s
        accelerator, release_s = placed.queues.accelerator, placed.queues.release_s
        jobs = moving_flows(problem, accelerator)
        moved = share(problem, accelerator, jobs, release_s[jobs])
        computed_s = float((placed.queues.load_s + problem.ready_s).max())
        length_s = max(computed_s, float(moved.arrived_s.max(initial=0.0)))
        self._budget.spend(4 * len(moved.segments.flow) + 20 * problem.jobs)
        if self._budget.is_timed:
            self._following_s = max(self._following_s, left_s - self._budget.left_s)
        return Reversed(
            accelerator.copy(),
            np.argsort(-release_s, kind="stable"),
            _mirrored(problem, jobs, moved, length_s),
            length_s,
        )


def _slower(end_s: Floats) -> Floats:
    """Return the factors on the work of responders with ends `end_s` that let them end closer together."""
    mean_s = float(end_s.mean())
    if mean_s == 0.0:
        return np.ones(len(end_s))
    factors: Floats = (mean_s / np.maximum(end_s, mean_s / 2)) ** _SHIFT
    return factors


def _mirrored(problem: BatchProblem, jobs: Ints, moved: Transfers, length_s: float) -> Transfers:
    pieces = moved.segments
    begin_s, end_s = np.maximum(length_s - pieces.end_s, 0.0), length_s - pieces.begin_s
    longer: NDArray[np.bool_] = end_s > begin_s
    bits = (pieces.end_s - pieces.begin_s) * pieces.bps
    job, begin_s, end_s, bits = jobs[pieces.flow[longer]], begin_s[longer], end_s[longer], bits[longer]
    arrived_s = np.array(problem.release_s)
    np.maximum.at(arrived_s, job, end_s)
    order = np.lexsort((begin_s, job))
    bps = bits[order] / (end_s - begin_s)[order]
    return Transfers(arrived_s, Segments(job[order], begin_s[order], end_s[order], bps))
