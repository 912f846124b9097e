"""Batches that compute and transmit, planned backwards from the end.

Read backwards, a job computes first and sends then.  Accelerators never wait for the network, so a placement and an
order fix when every input may begin to move; what is left is a fluid problem with release times, in which whoever has
the most to send goes first.  Forwards, the same plan has every input arrive just when its job can start.

When a link has to end at T, its last k jobs need it for the sum of their bits: the job before them has to be released
by then.  These are the due times (Jackson's rule); `spread` places jobs by them, on the cheapest accelerator that keeps
them.  Ruin and recreate (`rearrange`) removes what is late.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.budget import Budget
from fpga_pool.core.makespan.compiled import joint_kernels
from fpga_pool.core.makespan.fluid import Segments, Transfers
from fpga_pool.core.makespan.forwards import moving_flows, run_compiled
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Steps of the ascent to prices; of ruin and recreate between two looks at the budget.
_PRICE_STEPS, _STEPS = 60, 20
#: Targets relative to the bound, blends of the due times of all ingress together, and prices of haste to try.
_TARGETS = (1.0, 1.02, 1.05)
_BLENDS = (0.0, 0.9, 1.0)
_HASTES = (0.0, 0.1, 0.3, 1.0, 10.0)
_INGRESS_CAPS = (0.96, 0.98, 1.0)
#: Variants that are looked at with the network simulated, best estimates first.
_EVALUATED = 24
#: Rounds of ruin and recreate without success that end the search.
_PATIENCE = 60


@dataclass(frozen=True, slots=True, eq=False)
class Reversed:
    """A plan made backwards: accelerators (J,), the jobs in order of start (J,), how inputs move, and its length."""

    accelerator: Ints
    order: Ints
    transfers: Transfers
    length_s: float


def can_reverse(problem: BatchProblem) -> bool:
    """Say whether reversed time applies: compiled, and no job has to wait for a release, a load or another group."""
    waits = problem.release_s.any() or problem.load_s.any() or (problem.group != problem.group[:1]).any()
    return joint_kernels() is not None and not waits


class ReversedSearch:
    """Yields plans made backwards, each shorter than the ones before."""

    def __init__(self, problem: BatchProblem, bound_s: float, budget: Budget, rng: np.random.Generator) -> None:
        compiled = joint_kernels()
        if compiled is None:
            raise ValueError("reversed time needs the compiled kernels")
        self._compiled = compiled
        self._problem, self._bound_s, self._budget = problem, bound_s, budget
        self._state = rng.integers(1, 2**63, 1, np.uint64)
        self._bits = 8.0 * problem.input_bytes
        self._requester, self._responder = np.array(problem.requester), np.array(problem.responder)
        self._local_host = np.array(problem.local_host)
        self._egress_s_per_bit, self._ingress_s_per_bit = 1.0 / problem.egress_bps, 1.0 / problem.ingress_bps
        self._fastest_s = problem.seconds.min(axis=1)
        self._prices = np.ones(problem.accelerators + len(problem.ingress_bps))
        compiled.price(
            problem.seconds, self._responder, self._bits, self._ingress_s_per_bit, _PRICE_STEPS, self._prices
        )
        self._prices = np.maximum(self._prices, 1e-3 / len(self._prices))
        budget.spend(_PRICE_STEPS * problem.seconds.size)

    def run(self, at_most_s: float) -> Iterator[Reversed]:
        """Search below `at_most_s`, and below whatever was yielded, until the budget is spent."""
        tried: list[tuple[float, Ints, Ints, Floats]] = []
        for estimate_s, accelerator, sequence, due_s in self._variants()[:_EVALUATED]:
            if not self._budget.allows() or at_most_s <= self._bound_s * (1 + 1e-9):
                break
            length_s = estimate_s
            if estimate_s < at_most_s:
                found = self._evaluate(accelerator, sequence)
                length_s = found.length_s
                if found.length_s < at_most_s:
                    at_most_s = found.length_s
                    yield found
            tried.append((length_s, accelerator, sequence, due_s))
        if tried:
            yield from self._search(sorted(tried, key=lambda variant: variant[0]), at_most_s)

    def _search(self, variants: list[tuple[float, Ints, Ints, Floats]], at_most_s: float) -> Iterator[Reversed]:
        """Rearrange the best variants in turn towards a target below the best known length."""
        idle, turn = 0, 0
        pool = [
            (estimate_s, accelerator.copy(), sequence, due_s)
            for estimate_s, accelerator, sequence, due_s in variants[:3]
        ]
        problem = self._problem
        while self._budget.allows() and idle < _PATIENCE and at_most_s > self._bound_s * (1 + 1e-9):
            _, accelerator, sequence, due_s = pool[turn % len(pool)]
            turn += 1
            ambition = (0.2, 0.5, 0.8)[turn // len(pool) % 3]
            target_s = self._bound_s + (at_most_s - self._bound_s) * ambition
            self._compiled.rearrange(
                problem.seconds, sequence, self._requester, self._responder, self._bits, self._egress_s_per_bit,
                self._ingress_s_per_bit, due_s, self._local_host, target_s - problem.ready_s, self._prices, target_s,
                target_s, _STEPS, self._state, accelerator,
            )  # fmt: skip
            self._budget.spend(_STEPS * (problem.seconds.size // 5 + 100 * problem.jobs))
            idle += 1
            if self._estimate_s(accelerator, sequence) < at_most_s:
                found = self._evaluate(accelerator, sequence)
                if found.length_s < at_most_s:
                    at_most_s, idle = found.length_s, 0
                    yield found

    def _variants(self) -> list[tuple[float, Ints, Ints, Floats]]:
        """Return placements for several targets, best first: (estimate, accelerators, sequence, due times)."""
        problem = self._problem
        found: list[tuple[float, Ints, Ints, Floats]] = []
        chosen = np.ones(problem.jobs, np.bool_)
        for target in _TARGETS:
            target_s = target * self._bound_s
            own_s, shared_s = self._due_s(target_s)
            for blend in _BLENDS:
                due_s = np.minimum(own_s, target_s - (target_s - shared_s) * blend) if blend else own_s
                sequence = np.argsort(due_s, kind="stable")
                for haste in _HASTES:
                    for cap in _INGRESS_CAPS:
                        if not self._budget.allows():
                            return sorted(found, key=lambda variant: variant[0])
                        accelerator = np.zeros(problem.jobs, np.int64)
                        self._compiled.spread(
                            problem.seconds, sequence, self._requester, self._responder, self._bits,
                            self._ingress_s_per_bit, due_s, self._local_host,
                            target_s - problem.ready_s, self._prices, cap * target_s, 1.0,
                            haste / len(self._prices), 0.0, self._state, chosen,
                            np.zeros(problem.accelerators), np.zeros(len(problem.ingress_bps)), accelerator,
                        )  # fmt: skip
                        self._budget.spend(problem.seconds.size + 100 * problem.jobs)
                        found.append((self._estimate_s(accelerator, sequence), accelerator, sequence, due_s))
        return sorted(found, key=lambda variant: variant[0])

    def _due_s(self, target_s: float) -> tuple[Floats, Floats]:
        """Return (J,) by when each job is to be released, for its requester's egress and for all ingress together."""
        problem = self._problem
        by_size = np.argsort(self._fastest_s, kind="stable")[::-1]
        shared_s, own_s = np.empty(problem.jobs), np.empty(problem.jobs)
        ingress_bps = problem.ingress_bps[np.unique(problem.responder)].sum()
        shared_s[by_size] = target_s - np.cumsum(self._bits[by_size] / ingress_bps)
        by_link = by_size[np.argsort(problem.requester[by_size], kind="stable")]
        link = problem.requester[by_link]
        sent_s = np.cumsum(self._bits[by_link] * self._egress_s_per_bit[link])
        first = np.flatnonzero(np.diff(link, prepend=-1))
        before_s = np.append(0.0, sent_s)[first]
        own_s[by_link] = target_s - (sent_s - np.repeat(before_s, np.diff(first, append=len(link))))
        return own_s, shared_s

    def _released(self, accelerator: Ints, sequence: Ints) -> tuple[Floats, Floats, Floats]:
        problem = self._problem
        load_s, release_s = np.empty(problem.accelerators), np.empty(problem.jobs)
        link_end_s = np.empty(len(problem.egress_bps) + len(problem.ingress_bps))
        self._compiled.link_ends(
            problem.seconds, sequence, self._requester, self._responder, self._bits, self._egress_s_per_bit,
            self._ingress_s_per_bit, self._local_host, accelerator, load_s, release_s, link_end_s,
        )  # fmt: skip
        return load_s + problem.ready_s, release_s, link_end_s

    def _estimate_s(self, accelerator: Ints, sequence: Ints) -> float:
        """Return the length if no link ever waited for another: a bound for this placement and order."""
        end_s, _, link_end_s = self._released(accelerator, sequence)
        return max(float(end_s.max()), float(link_end_s.max()))

    def _evaluate(self, accelerator: Ints, sequence: Ints) -> Reversed:
        problem = self._problem
        end_s, release_s, _ = self._released(accelerator, sequence)
        jobs = moving_flows(problem, accelerator)
        moved = run_compiled(problem, accelerator, jobs, release_s[jobs], rank=None)
        length_s = max(float(end_s.max()), float(moved.arrived_s.max(initial=0.0)))
        self._budget.spend(4 * len(moved.segments.flow) + 20 * problem.jobs)
        return Reversed(
            accelerator.copy(),
            np.argsort(-release_s, kind="stable"),
            _mirrored(problem, jobs, moved, length_s),
            length_s,
        )


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
