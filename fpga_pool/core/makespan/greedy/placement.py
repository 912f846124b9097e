"""Placement of jobs in one pass, each where it would end first, and transfers by priority, compiled where possible.

`place` and `fluid.transmit` are the numpy versions; `place_ahead` and `transmit_in_order` call the kernels instead.

`hold` solves the problem with one job per place: the instances of one request, each of which keeps its accelerators
for all of its life.  The jobs are alike, so the places that complete first are an optimal choice.
"""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.kernels.compiled import Loops
from fpga_pool.core.makespan.network.fluid import Segments, Transfers, moves_over_network, transmit
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Finish times closer than this, relatively, are equal.
_EQUAL = 1e-12


def largest_first(problem: BatchProblem) -> Ints:
    """Return (J,) the jobs by group, then falling shortest compute time, then falling input."""
    fastest_s = problem.seconds.min(axis=1, initial=np.inf)
    return np.lexsort((-problem.input_bytes, -fastest_s, problem.group))


def place(problem: BatchProblem, order: Ints, ingress_cap_s: float = np.inf) -> Ints:
    """Return (J,) the accelerator of each job: in `order`, each where it would end first, as far as is known by then.

    An input is taken to arrive when all that was placed before it has crossed the same egress, or the same ingress.
    Ties go to the responder with the least ingress work, then to the lowest index.  Where nothing computes, egress
    takes the same time whatever the placement, and ingress alone decides: largest first on uniform machines.

    No responder gets more ingress than `ingress_cap_s` as long as another one has room.
    """
    finite = np.isfinite(problem.seconds)
    computes = bool(problem.seconds.any(where=finite))
    estimate = _Estimate(problem, ingress_cap_s, use_egress=computes)
    accelerator = np.zeros(problem.jobs, np.int64)
    for job in order.tolist():
        accelerator[job] = estimate.assign(job)
    return accelerator


class _Estimate:
    """State after the jobs placed so far: when accelerators are free and links have sent everything."""

    def __init__(self, problem: BatchProblem, ingress_cap_s: float, *, use_egress: bool) -> None:
        self._problem, self._ingress_cap_s = problem, ingress_cap_s
        self._free_s = np.array(problem.ready_s)
        self._loaded = np.array(problem.loaded)
        self._egress_s = np.zeros(len(problem.egress_bps))
        self._ingress_s = np.zeros(len(problem.ingress_bps))
        self._egress_s_per_bit = 1.0 / problem.egress_bps if use_egress else np.zeros(len(problem.egress_bps))
        self._ingress_s_per_bit = 1.0 / problem.ingress_bps

    def assign(self, job: int) -> int:
        """Place one job and account for it."""
        problem = self._problem
        requester, function = int(problem.requester[job]), problem.function[job]
        bits = 8.0 * float(problem.input_bytes[job])
        ready_s = self._free_s + np.where(self._loaded != function, problem.load_s, 0.0)
        arrival_s = self._arrival_s(job, requester, bits)[problem.responder]
        end_s = finish_s = np.maximum(ready_s, arrival_s) + problem.seconds[job]
        if self._ingress_cap_s < np.inf:
            end_s = np.where(self._has_room(requester, bits, np.isfinite(finish_s)), finish_s, np.inf)
        slot = self._first(end_s)
        self._free_s[slot] = finish_s[slot]
        self._loaded[slot] = function
        responder = int(problem.responder[slot])
        if problem.local_host[requester] != responder:
            self._egress_s[requester] += bits * self._egress_s_per_bit[requester]
            self._ingress_s[responder] += bits * self._ingress_s_per_bit[responder]
        return slot

    def _has_room(self, requester: int, bits: float, able: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return (A,) whether the ingress stays below the cap, or, where none does, is the least."""
        sent_s = (self._ingress_s + bits * self._ingress_s_per_bit)[self._problem.responder]
        least_s = float(sent_s.min(where=able, initial=np.inf))
        room: NDArray[np.bool_] = (sent_s <= max(self._ingress_cap_s, least_s)) | (
            self._problem.responder == self._problem.local_host[requester]
        )
        return room

    def _arrival_s(self, job: int, requester: int, bits: float) -> Floats:
        """Return (H,) when the input would have arrived at each responder."""
        release_s = float(self._problem.release_s[job])
        if bits == 0.0:
            return np.full(len(self._ingress_s), release_s)
        egress_s = bits * float(self._egress_s_per_bit[requester])
        ingress_s = bits * self._ingress_s_per_bit
        alone_s = release_s + np.maximum(ingress_s, egress_s)
        arrival_s: Floats = np.maximum(
            alone_s, np.maximum(self._ingress_s + ingress_s, self._egress_s[requester] + egress_s)
        )
        local = int(self._problem.local_host[requester])
        if local >= 0:
            arrival_s[local] = release_s
        return arrival_s

    def _first(self, finish_s: Floats) -> int:
        """Return the accelerator that ends first; among equals, the one whose ingress has the least to do."""
        equal = np.flatnonzero(finish_s <= finish_s.min() * (1 + _EQUAL))
        return int(equal[np.argmin(self._ingress_s[self._problem.responder[equal]])])


# ---- Compiled placement and transfers

#: Pieces per flow that are provided for at first.
_PIECES = 8
#: How much the less busy link of a flow counts; and what says that flows go by rank.
_OTHER_WEIGHT, _BY_RANK = 0.01, -1.0


def place_ahead(problem: BatchProblem, order: Ints, loops: Loops | None, ingress_cap_s: float = np.inf) -> Ints:
    """Return the accelerator of each job (J,): in `order`, each where it would end first, as `greedy.place`.

    No responder gets more ingress than `ingress_cap_s` as long as another one has room.
    """
    if loops is None:
        return place(problem, order, ingress_cap_s)
    computes = problem.seconds.any(where=np.isfinite(problem.seconds))
    accelerator = np.zeros(problem.jobs, np.int64)
    loops.joint.place(
        problem.seconds, order, np.array(problem.requester), np.array(problem.responder), 8.0 * problem.input_bytes,
        1.0 / problem.egress_bps if computes else np.zeros(len(problem.egress_bps)), 1.0 / problem.ingress_bps,
        np.array(problem.local_host), np.array(problem.function), np.array(problem.loaded), np.array(problem.load_s),
        np.array(problem.release_s), np.array(problem.ready_s), np.zeros(len(problem.ingress_bps)), accelerator,
        ingress_cap_s,
    )  # fmt: skip
    return accelerator


def moving_flows(problem: BatchProblem, accelerator: Ints) -> Ints:
    """Return the jobs whose input takes time to reach its accelerator."""
    return np.flatnonzero(moves_over_network(problem, accelerator))


def transmit_in_order(problem: BatchProblem, accelerator: Ints, order: Ints, loops: Loops | None) -> Transfers:
    """As `fluid.transmit`: by strict priority, first in `order` (J,) first."""
    if loops is None:
        return transmit(problem, accelerator, order)
    jobs = moving_flows(problem, accelerator)
    rank = np.empty(problem.jobs, np.int64)
    rank[order] = np.arange(problem.jobs)
    moved = run_compiled(problem, accelerator, jobs, problem.release_s[jobs], rank[jobs], loops)
    arrived_s = np.array(problem.release_s)
    arrived_s[jobs] = moved.arrived_s
    pieces = moved.segments
    return Transfers(arrived_s, Segments(jobs[pieces.flow], pieces.begin_s, pieces.end_s, pieces.bps))


def run_compiled(
    problem: BatchProblem, accelerator: Ints, jobs: Ints, release_s: Floats, rank: Ints | None, loops: Loops
) -> Transfers:
    """Move the inputs of `jobs` (F,) from `release_s` (F,) on; by `rank`, or else the host with the most to send first.

    Flows are numbered as in `jobs`; segments are sorted by flow, then begin.
    """
    room, arrived_s = _PIECES * len(jobs) + 64, np.zeros(len(jobs))
    while True:
        flow, begin_s, end_s, bps = np.empty(room, np.int64), np.empty(room), np.empty(room), np.empty(room)
        count = loops.joint.transmit(
            np.zeros(len(jobs), np.int64) if rank is None else rank,
            problem.requester[jobs], problem.responder[accelerator[jobs]], 8.0 * problem.input_bytes[jobs],
            np.array(release_s), np.array(problem.egress_bps), np.array(problem.ingress_bps), arrived_s,
            _BY_RANK if rank is not None else _OTHER_WEIGHT,
            flow, begin_s, end_s, bps,
        )  # fmt: skip
        if count >= 0:
            break
        room *= 4
    used = np.lexsort((begin_s[:count], flow[:count]))
    return Transfers(arrived_s, Segments(flow[used], begin_s[used], end_s[used], bps[used]))


# ---- Instances

HostT = TypeVar("HostT", bound=Hashable)


def hold(
    first_s: Mapping[HostT, float], further_s: Callable[[HostT], Sequence[float]], instances: int
) -> tuple[dict[HostT, int], float]:
    """Return how many instances each host takes, and when the last of them completes.

    `first_s` tells when the first instance of each host would complete, and `further_s`, which is asked only of hosts
    that take one, when the second, third ... would.  The first places of a host are its best, so later ones count as
    no earlier than those before them.  Where there are too few places, all are taken.
    """
    taken: dict[HostT, int] = {}
    ends_s = 0.0
    # The position breaks ties in the order of the mapping, without comparing hosts.  Of first places no more are taken
    # than there are instances: the order of all others does not matter.
    places = ((end_s, place, host) for place, (host, end_s) in enumerate(first_s.items()))
    nearest = heapq.nsmallest(instances, places)  # sorted, hence a heap
    for _ in range(instances):
        if not nearest:
            break
        end_s, place, host = nearest[0]
        ends_s = max(ends_s, end_s)
        taken[host] = taken.get(host, 0) + 1
        further = further_s(host)[taken[host] - 1 :]
        if further:
            heapq.heapreplace(nearest, (max(end_s, further[0]), place, host))
        else:
            heapq.heappop(nearest)
    return taken, ends_s
