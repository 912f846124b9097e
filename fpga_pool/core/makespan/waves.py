"""Batches of mixed types, in waves (makespan paper, section 3.5, "Mixture of Job Types")."""

from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.makespan.cim import CimParams, fastest_s, plan_computation
from fpga_pool.core.makespan.compiled import Kernels
from fpga_pool.core.makespan.fluid import transfer_s
from fpga_pool.core.makespan.ncjm import NcjmParams, plan_both
from fpga_pool.core.makespan.nim import NimParams, plan_transfers
from fpga_pool.core.makespan.stages import Progress, stages
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class WavesParams(CimParams):
    """Parameters of `waves`."""

    #: The paper knows the types of its jobs and does not say what "negligible" is.
    negligible: float = field(
        default=0.1,
        metadata={
            "min": 0.0,
            "max": 1.0,
            "help": "A phase of a job is neglected if it takes at most this share of the other, both at their best.",
        },
    )

    def __post_init__(self) -> None:
        CimParams.__post_init__(self)
        if not 0 <= self.negligible <= 1:
            raise ValueError(f"negligible: expected 0 to 1, got {self.negligible!r}")


class Waves:
    """Divides each batch by type: computation-intensive jobs first, network-intensive last, each by its algorithm."""

    name = "waves"
    Params = WavesParams

    def __init__(self, params: WavesParams | None = None, kernels: Kernels = Kernels.COMPILED) -> None:
        self._params, self._kernels = params or WavesParams(), kernels

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; only `bisection` uses `rng`, for its first makespan."""
        return self.decide_around(view, EarlierTransfers(), state, rng)

    def decide_around(
        self, view: BatchProblem, earlier: EarlierTransfers, state: PolicyState, rng: np.random.Generator
    ) -> BatchPlan:
        """Plan the batch in what earlier transfers leave, as one that arrives after them (section 3.4)."""
        params, progress = self._params, Progress(view, self._kernels.load(), earlier)
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
        return progress.plan(self.name)


def _quickest_transfer_s(problem: BatchProblem) -> Floats:
    """Return (J,) the time of each input to the responder where that is least, both links to itself."""
    quickest_s = np.full(problem.jobs, np.inf)
    for slot in range(problem.accelerators):
        able = np.isfinite(problem.seconds[:, slot])
        quickest_s[able] = np.minimum(quickest_s, transfer_s(problem, int(problem.responder[slot])))[able]
    return quickest_s
