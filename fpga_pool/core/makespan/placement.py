"""Where jobs go if each in turn takes the accelerator that would end it first."""

import numpy as np
from numpy.typing import NDArray

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
    """What the jobs placed so far leave: when accelerators are free and links have sent all."""

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
