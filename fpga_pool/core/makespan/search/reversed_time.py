"""Batches that compute and transmit, planned backwards from the end.

Read backwards, a job computes first and sends then.  Accelerators never wait for the network, so a placement and an
order fix when every input may begin to move; what is left is a fluid problem with release times, in which the host with
the most to send goes first. Forwards, the same plan has every input arrive just when its job can start.

When a link has to end at T, its last k jobs need it for the sum of their bits: the job before them has to be released
by then.  These are the due times (Jackson's rule); `spread` places jobs by them, on the cheapest accelerator that keeps
them.  Links must not idle at the beginning either, which small jobs first prevent (Johnson's rule for two machines);
but the largest must be released long before the end: each queue is ordered by Smith's rule, from its end on the longest
job that is not late then.  Responders that compute hardly quicker than they receive idle all the same, and are given
less.  The best placements are then improved, change by change (`local_search`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.fluid import Segments, Transfers, moving_flows, share
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.makespan.search.local_search import LocalOptimum, LocalSearch
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Steps of the ascent to prices.
_PRICE_STEPS = 60
#: Targets relative to the bound.
_TARGETS = (1.0, 1.04)
#: Shares of the jobs of each size that come after the largest; none: by due time alone.
_AFTERWARDS = (None, 0.2)
#: How often ingress is given another way, and how much of the way to equal ends it goes each time.
_SHIFTS, _SHIFT = 6, 0.5
#: How long before the end of the plan a job is released, as a multiple of what is necessary at least.
_EARLY = 1.3
#: What the placements are compared at, relative to the bound.
_COMPARED = 1.05
#: Jobs of about one size, and what is left to order by size in the time that computing takes where nothing idles.
_OF_A_SIZE, _STRETCH = 10, 1.1
#: Placements that are improved, changes in one go, and how much of the way to the bound they aim at.
_SEARCHED, _CHANGES, _AMBITIONS = 2, 1000, (0.3, 0.3, 0.2, 0.2, 0.1, 0.1, 0.05)
#: Changes after which the clock is looked at where seconds are limited.
_CHANGES_PER_LOOK = 40
#: Goes after which only the best of them is improved, and share of the seconds for placements where these are limited.
_ROUNDS, _PLACING = 3, 0.2
#: Following the flows of such a plan takes up to this many times as long as of one made forwards, as more flows wait.
_FOLLOWING = 10
#: How much shorter a plan has to be for its flows to be followed through the network once more, relatively.
_SHORTER = 5e-3
#: Lengths that differ by less, relatively, are the same.
_SAME = 1e-9
#: Work to try one change, in pairs of job and accelerator per job of a responder.
_PAIRS_PER_CHANGE = 250
#: Goes without success that end the search.
_PATIENCE = 60


@dataclass(frozen=True, slots=True, eq=False)
class Reversed:
    """A plan made backwards: accelerators (J,), the jobs in order of start (J,), how inputs move, and its length."""

    accelerator: Ints
    order: Ints
    transfers: Transfers
    length_s: float


@dataclass(slots=True, eq=False)
class _Candidate:
    """A placement that is improved, the best it was, and its estimate when its flows were followed."""

    placed: LocalOptimum
    best: LocalOptimum
    followed_s: float = np.inf

    def change(self, placed: LocalOptimum) -> bool:
        """Go on with what local search made of it; say whether that is better than ever."""
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
    """Yields plans made backwards, each shorter than the ones before.

    Where seconds are limited, what is left of them for the flows of the last plan is judged by `forwards_s`, which the
    flows of a plan made forwards took.
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
        #: Seconds that following the flows of a plan takes.
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
        """Search below `at_most_s`, and below whatever was yielded, until the budget is spent."""
        # By work, more of it goes on where less of it ends.
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
        """Return whether the search may go on, and the flows of the last plan be followed after that."""
        return self._budget.allows() and self._budget.left_s > self._following_s

    def _may_follow_twice(self) -> bool:
        """Return whether the flows of a plan may be followed now, and those of the last one after that."""
        return self._budget.left_s > 2 * self._following_s

    def _placements(self, budget: Budget) -> Iterator[LocalOptimum]:
        """Yield placements for several targets, orders, prices and caps of ingress.

        Small jobs first keep ingress busy from the beginning, but the large ones must be released early enough: so each
        slot computes the longest job last that its due time allows.  Where computing is hardly quicker than sending,
        ingress idles longer, and the responder ends late: it gets less, and the others more.
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
        """Yield targets, the due times they give, and an order."""
        for afterwards in _AFTERWARDS:
            for target in _TARGETS:
                due_s = self._due_s(target * self._bound_s)
                yield target * self._bound_s, due_s, self._sequence(due_s, afterwards)

    def _sequence(self, due_s: Floats, afterwards: float | None) -> Ints:
        """Return (J,) the jobs in the order in which they compute, backwards from the end.

        By due time; or small jobs first, but for a share `afterwards` of each size, of the requesters with the least to
        send, which come after the largest, the smallest last.  Then, too, a job comes no later than it is due.
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
        """Return (J,) by when each job is to be released for its requester's egress."""
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
        """Let all flows share the network."""
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
    """Return by which factor responders that end then should get more, or less, so that all end together."""
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
