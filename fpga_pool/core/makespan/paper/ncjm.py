"""`ncjm` and `waves`: batches that compute and transmit, and batches of mixed types (makespan paper, 3.3 and 3.5)."""

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from fpga_pool.core.makespan.fluid import transfer_s
from fpga_pool.core.makespan.paper.cim import (
    CimParams,
    Progress,
    StagedPolicy,
    fastest_s,
    free_s,
    place,
    plan_computation,
    stages,
)
from fpga_pool.core.makespan.paper.nim import NimParams, plan_transfers
from fpga_pool.core.makespan.residual import as_soon_as_possible, just_in_time
from fpga_pool.core.parameters import parameter
from fpga_pool.core.types import BatchProblem, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class NcjmParams(CimParams):
    """Parameters of `ncjm`."""

    order: str = parameter(
        "shortest",
        "Which job each accelerator computes first; the paper says shortest.",
        choices=["shortest", "longest"],
    )
    sending: str = parameter(
        "just-in-time",
        "When an input that could arrive early is sent: at a low rate, to arrive when its accelerator "
        "becomes free, as in line 7 of Algorithm 4, or as soon as possible.",
        choices=["just-in-time", "as-soon-as-possible"],
    )


class Ncjm(StagedPolicy[NcjmParams]):
    """Place jobs by computation alone, then send the inputs in order of the jobs' earliest possible starts."""

    name = "ncjm"
    Params = NcjmParams

    def _plan(self, progress: Progress, rng: np.random.Generator) -> None:
        for jobs in stages(progress.problem, fastest_s(progress.problem), self._params.size_groups):
            plan_both(progress, jobs, self._params, rng)


def plan_both(progress: Progress, jobs: Ints, params: NcjmParams, rng: np.random.Generator) -> None:
    """Plan a stage of jobs (n,) by Algorithm 4, if neither computation nor transfer can be neglected."""
    # Lines 1 and 2.  Jobs of responders stay on their own hosts (section 3.5).
    seconds = np.where(progress.near(jobs), progress.seconds(jobs), np.inf)
    slots = place(seconds, free_s(progress, jobs), params, rng)
    length_s = seconds[np.arange(len(jobs)), slots]
    queues: dict[int, deque[int]] = {}
    for k in np.argsort(length_s if params.order == "shortest" else -length_s, kind="stable").tolist():
        queues.setdefault(int(slots[k]), deque()).append(int(jobs[k]))
    # Lines 3 to 15.  Earliest starts increase along a queue, so the smallest of all is at the head of a queue.
    earliest = [(progress.earliest_s(queue[0], slot), slot) for slot, queue in queues.items()]
    heapify(earliest)
    while earliest:
        by_s, slot = heappop(earliest)
        job = queues[slot].popleft()
        _send(progress, job, slot, by_s, params)
        progress.queue(job, slot)
        if queues[slot]:
            heappush(earliest, (progress.earliest_s(queues[slot][0], slot), slot))


def _send(progress: Progress, job: int, slot: int, by_s: float, params: NcjmParams) -> None:
    """Plan the transfer of one job that could start at `by_s`: lines 5 to 10 and 13."""
    problem = progress.problem
    if not progress.moves(np.array([job]), slot)[0]:
        return
    requester, responder = int(problem.requester[job]), int(problem.responder[slot])
    left = progress.residual.between(requester, responder, float(problem.release_s[job]))
    pieces = just_in_time(left, progress.bits(job), by_s) if params.sending == "just-in-time" else None
    progress.send(job, slot, pieces or as_soon_as_possible(left, progress.bits(job)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WavesParams(CimParams):
    """Parameters of `waves`."""

    #: In the paper the types of jobs are given; it does not define "negligible".
    negligible: float = parameter(
        0.1,
        "A phase of a job is neglected if its shortest duration is at most this share of that of the other phase.",
        min=0.0,
        max=1.0,
    )


class Waves(StagedPolicy[WavesParams]):
    """Divide each batch by type: computation-intensive jobs first, network-intensive last, each by its algorithm."""

    name = "waves"
    Params = WavesParams

    def _plan(self, progress: Progress, rng: np.random.Generator) -> None:
        params, view = self._params, progress.problem
        both = NcjmParams(method=params.method, epsilon=params.epsilon)
        network = NimParams(method=params.method, epsilon=params.epsilon)
        compute_s, send_s = fastest_s(view), _quickest_transfer_s(view)
        computes = send_s <= params.negligible * compute_s
        transmits = ~computes & (compute_s <= params.negligible * send_s)
        for jobs in stages(view, compute_s + send_s, params.size_groups):
            if computes[jobs].any():
                plan_computation(progress, jobs[computes[jobs]], params, rng)
            mixed = ~computes[jobs] & ~transmits[jobs]
            if mixed.any():
                plan_both(progress, jobs[mixed], both, rng)
            if transmits[jobs].any():
                plan_transfers(progress, jobs[transmits[jobs]], network, rng)


def _quickest_transfer_s(problem: BatchProblem) -> Floats:
    """Return (J,) the shortest transfer time of each input to any usable responder, with both links to itself."""
    quickest_s = np.full(problem.jobs, np.inf)
    for slot in range(problem.accelerators):
        able = np.isfinite(problem.seconds[:, slot])
        quickest_s[able] = np.minimum(quickest_s, transfer_s(problem, int(problem.responder[slot])))[able]
    return quickest_s
