"""The baselines of the makespan paper, section 5: shortest and largest job first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.makespan.execution import complete_plan
from fpga_pool.core.makespan.fluid import transfer_s
from fpga_pool.core.makespan.listing import ListScheduler, Preference
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineParams:
    """Parameters of `sjf` and `ljf`."""

    #: Section 5 lets a job be transmitted "even though it cannot start execution" and gives no number: 1 is the least
    #: that overlaps, and more would only bind jobs to accelerators earlier.
    prefetch: int = parameter(
        1,
        "Number of jobs that may be assigned to an accelerator beyond the one it computes, so that their "
        "inputs are transferred meanwhile; 0 = none.",
        min=0,
    )
    #: "Schedule as many resources as possible to this job" (section 5) may be read of its start alone, or of all the
    #: time it is sent.
    top_up: bool = parameter(
        True,
        "Running transfers take bandwidth that becomes free; otherwise each keeps its initial rate, and "
        "waits until that is at least a tenth of its slower link.",
    )
    #: Not in the paper; the default gives its testbed figures (section 5.1).
    ties: str = parameter(
        "testbed",
        "Which of several available accelerators chooses first, before the lowest index: testbed is, for "
        "sjf, the one that would complete its job first, then lowest ingress; for ljf lowest ingress.",
        choices=["testbed", "lowest-ingress", "highest-ingress", "index"],
    )

    def __post_init__(self) -> None:
        if not isinstance(self.prefetch, int) or self.prefetch < 0:
            raise ValueError(f"prefetch: expected a whole number of jobs, 0 or more, got {self.prefetch!r}")
        if self.ties not in _TIES:
            raise ValueError(f"ties: expected one of {', '.join(_TIES)}, got {self.ties!r}")


#: What accelerators that are available at the same time are sorted by, from the ingress of their responders.
_TIES: Mapping[str, Callable[[float], float]] = {
    "testbed": lambda ingress_bps: ingress_bps,
    "lowest-ingress": lambda ingress_bps: ingress_bps,
    "highest-ingress": lambda ingress_bps: -ingress_bps,
    "index": lambda _: 0.0,
}


class Sjf:
    """An available accelerator gets the job that completes quickest on it.

    Of accelerators that are available at the same time the one that would complete its job first chooses first, as
    the testbed figure of section 5.1 needs; then lowest ingress, then index.
    """

    name = "sjf"
    Params = BaselineParams

    def __init__(self, params: BaselineParams | None = None) -> None:
        self._params = params or BaselineParams()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic, `rng` is not used."""
        return self.meet(view, view, rng)

    def meet(self, believed: BatchProblem, actual: BatchProblem, rng: np.random.Generator) -> BatchPlan:
        """Return what comes of it where jobs are chosen by the times of `believed`, and take those of `actual`."""
        return _plan(actual, _Shortest(believed, self._params.ties), self._params, self.name)


class Ljf:
    """An available accelerator gets the job whose completion takes longest, averaged over all accelerators.

    Of accelerators that are available at the same time the one of lowest ingress chooses first: only that order gives
    the testbed figure of section 5.1.
    """

    name = "ljf"
    Params = BaselineParams

    def __init__(self, params: BaselineParams | None = None) -> None:
        self._params = params or BaselineParams()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic, `rng` is not used."""
        return self.meet(view, view, rng)

    def meet(self, believed: BatchProblem, actual: BatchProblem, rng: np.random.Generator) -> BatchPlan:
        """Return what comes of it where jobs are chosen by the times of `believed`, and take those of `actual`."""
        return _plan(actual, _Largest(believed, self._params.ties), self._params, self.name)


def _plan(problem: BatchProblem, preference: Preference, params: BaselineParams, policy: str) -> BatchPlan:
    accelerator, order, transfers = ListScheduler(problem, preference, params.prefetch, params.top_up).run()
    return complete_plan(problem, accelerator, order, transfers, policy)


class _Shortest:
    """Rank by completion time: input at the best rate of the pair, slot free and loaded, compute."""

    def __init__(self, problem: BatchProblem, ties: str) -> None:
        self._problem, self._ties = problem, ties
        self._transfer_s: dict[int, Floats] = {}
        self._seconds = np.ascontiguousarray(problem.seconds.T)

    def rank(self, slot: int, jobs: Ints, now_s: float, free_s: float, loaded: int) -> Floats:
        problem, responder = self._problem, int(self._problem.responder[slot])
        if responder not in self._transfer_s:
            self._transfer_s[responder] = transfer_s(problem, responder)
        arrives_s = now_s + self._transfer_s[responder][jobs]
        ready_s = np.where(problem.function[jobs] != loaded, free_s + problem.load_s[slot], free_s)
        finish_s: Floats = np.maximum(arrives_s, ready_s) + self._seconds[slot, jobs]
        return finish_s

    def turn(self, slot: int, rank: float) -> tuple[float, float, int]:
        by_ingress = _by_ingress(self._problem, slot, self._ties)
        return (rank, by_ingress, slot) if self._ties == "testbed" else (by_ingress, 0.0, slot)


class _Largest:
    """Rank by falling average completion time, which depends on the job alone."""

    def __init__(self, problem: BatchProblem, ties: str) -> None:
        self._problem, self._ties = problem, ties
        self._place = np.empty(problem.jobs)
        self._place[np.argsort(-_average_completion_s(problem), kind="stable")] = np.arange(problem.jobs)

    def rank(self, slot: int, jobs: Ints, now_s: float, free_s: float, loaded: int) -> Floats:
        return np.where(np.isfinite(self._problem.seconds[jobs, slot]), self._place[jobs], np.inf)

    def turn(self, slot: int, rank: float) -> tuple[float, float, int]:
        return _by_ingress(self._problem, slot, self._ties), 0.0, slot


def _by_ingress(problem: BatchProblem, slot: int, ties: str) -> float:
    return _TIES[ties](float(problem.ingress_bps[problem.responder[slot]]))


def _average_completion_s(problem: BatchProblem) -> Floats:
    """Return (J,) transfer at the best rate plus compute, averaged over the accelerators that can run the job."""
    total_s, able = np.zeros(problem.jobs), np.zeros(problem.jobs)
    for responder in np.unique(problem.responder).tolist():
        seconds = problem.seconds[:, problem.responder == responder]
        finite = np.isfinite(seconds)
        can_run = finite.sum(axis=1)
        total_s += can_run * transfer_s(problem, responder) + seconds.sum(axis=1, where=finite)
        able += can_run
    return total_s / able
