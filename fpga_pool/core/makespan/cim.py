"""Computation-intensive batches: CIM-LP, Algorithm 1 and Algorithm 2 (makespan paper, section 3.1)."""

from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.makespan.compiled import Kernels, Loops
from fpga_pool.core.makespan.relaxation import Relaxed, bisection, one_shot
from fpga_pool.core.makespan.residual import as_soon_as_possible
from fpga_pool.core.makespan.rounding import round_shares
from fpga_pool.core.makespan.stages import Progress, stages
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class CimParams:
    """Parameters of `cim`, which the other policies of the paper have too."""

    method: str = field(
        default="one-shot",
        metadata={
            "choices": ["one-shot", "bisection"],
            "help": "How CIM-LP is solved: one-shot finds the least makespan and the vertex that has it; bisection is "
            "Algorithm 1 to the letter, which ends at any vertex that is feasible, and takes many times as long.",
        },
    )
    #: The paper gives no number.
    epsilon: float = field(
        default=1e-3, metadata={"min": 0.0, "help": "Relative accuracy at which bisection ends; above 0."}
    )
    size_groups: int = field(
        default=1,
        metadata={
            "min": 1,
            "help": "Groups of equal number into which a batch is divided by size, the smallest jobs planned first, so "
            "that these do not wait for the makespan; 1 = none.",
        },
    )

    def __post_init__(self) -> None:
        if self.method not in {"one-shot", "bisection"}:
            raise ValueError(f"method: expected 'one-shot' or 'bisection', got {self.method!r}")
        if not 0 < self.epsilon < np.inf:
            raise ValueError(f"epsilon: expected a number above 0, got {self.epsilon!r}")
        if not isinstance(self.size_groups, int) or self.size_groups < 1:
            raise ValueError(f"size_groups: expected a whole number, 1 or more, got {self.size_groups!r}")


class Cim:
    """Places by computation alone, shortest first on each accelerator.

    Inputs, which the model neglects, are sent as soon as possible in the order in which the jobs would start.
    """

    name = "cim"
    Params = CimParams

    def __init__(self, params: CimParams | None = None, kernels: Kernels = Kernels.COMPILED) -> None:
        self._params, self._kernels = params or CimParams(), kernels

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; only `bisection` uses `rng`, for its first makespan."""
        return self.decide_around(view, EarlierTransfers(), state, rng)

    def decide_around(
        self, view: BatchProblem, earlier: EarlierTransfers, state: PolicyState, rng: np.random.Generator
    ) -> BatchPlan:
        """Plan the batch in what earlier transfers leave, as one that arrives after them (section 3.4)."""
        progress = Progress(view, self._kernels.load(), earlier)
        for jobs in stages(view, fastest_s(view), self._params.size_groups):
            plan_computation(progress, jobs, self._params, rng)
        return progress.plan(self.name)


def plan_computation(progress: Progress, jobs: Ints, params: CimParams, rng: np.random.Generator) -> None:
    """Plan a stage of computation-intensive jobs (n,)."""
    problem = progress.problem
    seconds = progress.seconds(jobs)
    slots = place(seconds, free_s(progress, jobs), params, rng, progress.loops)
    shortest = np.argsort(seconds[np.arange(len(jobs)), slots], kind="stable")
    starts_s = np.zeros(len(jobs))
    busy_s = np.array(progress.free_s)
    for k in shortest.tolist():
        starts_s[k] = busy_s[slots[k]]
        busy_s[slots[k]] += seconds[k, slots[k]]
    for k in shortest[np.argsort(starts_s[shortest], kind="stable")].tolist():
        job, slot = int(jobs[k]), int(slots[k])
        if progress.moves(jobs[[k]], slot)[0]:
            left = progress.residual.between(
                int(problem.requester[job]), int(problem.responder[slot]), float(problem.release_s[job])
            )
            progress.send(job, slot, as_soon_as_possible(left, progress.bits(job)))
        progress.queue(job, slot)


def place(seconds: Floats, ready_s: Floats, params: CimParams, rng: np.random.Generator, loops: Loops | None) -> Ints:
    """Return (n,) the accelerator of each job by Algorithms 1 and 2; parameters as in `one_shot`."""
    if len(seconds) == 1:
        return np.array([int(np.argmin(seconds[0] + ready_s))])
    return round_shares(relax(seconds, ready_s, params, rng, loops), seconds, ready_s)


def relax(
    seconds: Floats, ready_s: Floats, params: CimParams, rng: np.random.Generator, loops: Loops | None
) -> Relaxed:
    """Return the solution of CIM-LP by the method wanted; parameters as in `one_shot`."""
    if params.method == "bisection":
        return bisection(seconds, ready_s, params.epsilon, rng)
    return one_shot(seconds, ready_s, loops)


def free_s(progress: Progress, jobs: Ints) -> Floats:
    """Return (A,) c_j of section 3.4: earlier jobs are completed, and the batch has arrived."""
    ready_s: Floats = np.maximum(progress.free_s, progress.problem.release_s[jobs].max())
    return ready_s


def fastest_s(problem: BatchProblem) -> Floats:
    """Return (J,) the compute time of each job on its fastest accelerator."""
    fastest: Floats = problem.seconds.min(axis=1, initial=np.inf)
    return fastest
