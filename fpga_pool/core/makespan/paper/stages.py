"""A batch in stages, each planned on what the ones before it leave (makespan paper, sections 3.4 and 3.5).

Jobs that are released together form a separate batch that arrives then; of those, lower fairness groups come first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.greedy.execution import complete_plan
from fpga_pool.core.makespan.network.fluid import Segments, Transfers
from fpga_pool.core.makespan.network.residual import Pieces, Residual
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats, Ints

P = TypeVar("P")


def stages(problem: BatchProblem, size: Floats, size_groups: int) -> Iterator[Ints]:
    """Yield the jobs of each stage: by release, then group, then, in `size_groups` parts of equal number, `size` (J,).

    The paper divides jobs "into multiple groups according to their size" (section 3.5) and does not say where.
    """
    if problem.jobs == 0:
        return
    order = np.lexsort((size, problem.group, problem.release_s))
    release_s, group = problem.release_s[order], problem.group[order]
    changes = np.flatnonzero((release_s[1:] != release_s[:-1]) | (group[1:] != group[:-1])) + 1
    for jobs in np.split(order, changes):
        for part in np.array_split(jobs, min(size_groups, len(jobs))):
            yield np.sort(part)


class Progress:
    """What is planned of a batch so far: queues, loads and transfers."""

    def __init__(self, problem: BatchProblem, earlier: EarlierTransfers) -> None:
        self.problem = problem
        #: (A,) when each accelerator has computed all it has.
        self.free_s = np.array(problem.ready_s)
        self.residual = Residual(problem.egress_bps, problem.ingress_bps)
        pieces = Pieces(earlier.begin_s, earlier.end_s, earlier.bps)
        self.residual.take_all(earlier.requester, earlier.responder, pieces)
        self._loaded = np.array(problem.loaded)
        self._accelerator = np.zeros(problem.jobs, np.int64)
        self._arrived_s = np.array(problem.release_s)
        self._order: list[int] = []
        self._pieces: list[tuple[int, Pieces]] = []
        self._local = _local(problem)

    def seconds(self, jobs: Ints) -> Floats:
        """Return (n, A) compute times with the time to load the function added where another one is loaded (3.5)."""
        problem = self.problem
        if not problem.load_s.any():
            return problem.seconds[jobs]
        return problem.seconds[jobs] + np.where(problem.function[jobs, None] != self._loaded, problem.load_s, 0.0)

    def near(self, jobs: Ints) -> NDArray[np.bool_]:
        """Return (n, A) where each job may go if jobs of responders stay at home (3.5, "Mixture of Job Sources")."""
        able = np.isfinite(self.problem.seconds[jobs])
        own = self._local[self.problem.requester[jobs]] & able
        at_home = own.any(axis=1)
        able[at_home] = own[at_home]
        return able

    def moves(self, jobs: Ints, slot: int) -> NDArray[np.bool_]:
        """Return (n,) whether the input of each job takes time to reach `slot`."""
        problem = self.problem
        requester = problem.requester[jobs]
        limited = np.isfinite(problem.egress_bps[requester]) | np.isfinite(problem.ingress_bps[problem.responder[slot]])
        moving: NDArray[np.bool_] = (problem.input_bytes[jobs] > 0) & limited & ~self._local[requester, slot]
        return moving

    def bits(self, job: int) -> float:
        """Return the size of a job's input."""
        return 8.0 * float(self.problem.input_bytes[job])

    def earliest_s(self, job: int, slot: int) -> float:
        """Return when `slot` could compute the job, its input aside: after its queue, and the load."""
        load_s = float(self.problem.load_s[slot]) if self.problem.function[job] != self._loaded[slot] else 0.0
        return float(self.free_s[slot]) + load_s

    def send(self, job: int, slot: int, pieces: Pieces) -> None:
        """Plan the transfer of a job's input."""
        self.residual.take(int(self.problem.requester[job]), int(self.problem.responder[slot]), pieces)
        self._pieces.append((job, pieces))
        self._arrived_s[job] = pieces.end_s[-1]

    def queue(self, job: int, slot: int) -> None:
        """Plan the computation of a job, after its transfer and all that is queued there."""
        begin_s = max(self.earliest_s(job, slot), float(self._arrived_s[job]))
        self.free_s[slot] = begin_s + float(self.problem.seconds[job, slot])
        self._loaded[slot] = self.problem.function[job]
        self._accelerator[job] = slot
        self._order.append(job)

    def plan(self, policy: str) -> BatchPlan:
        """Return the plan, all jobs queued; lower groups run first among those whose input is there."""
        order = np.array(self._order, dtype=np.int64)
        order = order[np.argsort(self.problem.group[order], kind="stable")]
        transfers = Transfers(self._arrived_s, self._segments())
        return complete_plan(self.problem, self._accelerator, order, transfers, policy)

    def _segments(self) -> Segments:
        if not self._pieces:
            return Segments(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))
        jobs, pieces = zip(*sorted(self._pieces, key=lambda piece: piece[0]), strict=True)
        columns = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return Segments(np.repeat(jobs, [len(piece.bps) for piece in pieces]), *columns)


#: Plans the jobs (n,) of one stage.
Stage = Callable[[Progress, Ints], None]


def _local(problem: BatchProblem) -> NDArray[np.bool_]:
    """Return (R, A) whether the accelerator is on the requester's own host."""
    local: NDArray[np.bool_] = problem.local_host[:, None] == problem.responder
    return local


class StagedPolicy(ABC, Generic[P]):
    """Base of the paper's policies: a batch is planned stage by stage, around what earlier batches still transfer."""

    name: str
    Params: type[P]

    def __init__(self, params: P | None = None) -> None:
        self._params = params or self.Params()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; only `bisection` uses `rng`, for its first makespan."""
        return self.decide_around(view, EarlierTransfers(), state, rng)

    def decide_around(
        self, view: BatchProblem, earlier: EarlierTransfers, state: PolicyState, rng: np.random.Generator
    ) -> BatchPlan:
        """Plan the batch in what earlier transfers leave, as one that arrives after them (section 3.4)."""
        progress = Progress(view, earlier)
        self._plan(progress, rng)
        return progress.plan(self.name)

    @abstractmethod
    def _plan(self, progress: Progress, rng: np.random.Generator) -> None:
        """Plan every stage of `progress.problem`."""
