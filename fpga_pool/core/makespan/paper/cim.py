"""`cim`: computation-intensive batches by CIM-LP and Algorithms 1 and 2 (makespan paper, section 3.1).

`round_shares` is Algorithm 2, which rounds a fractional solution to one accelerator per job.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import scipy  # loads its parts when they are first used
from numpy.typing import NDArray

from fpga_pool.core.makespan.execution import complete_plan
from fpga_pool.core.makespan.fluid import Segments, Transfers
from fpga_pool.core.makespan.relaxation import Relaxed, bisection, one_shot, vertex
from fpga_pool.core.makespan.residual import Pieces, Residual, as_soon_as_possible
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats, Ints

P = TypeVar("P")


def stages(problem: BatchProblem, size: Floats, size_groups: int) -> Iterator[Ints]:
    """Yield the jobs of each stage: by release, then group, then `size` (J,) in `size_groups` equally large parts.

    The paper divides jobs "into multiple groups according to their size" (section 3.5), but gives no limits.
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
    """The part of a batch that is planned so far: queues, loads and transfers."""

    def __init__(self, problem: BatchProblem, earlier: EarlierTransfers) -> None:
        self.problem = problem
        #: (A,) the time when each accelerator has computed its queue.
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
        """Return (n, A) compute times, plus the load time if another function is loaded (3.5)."""
        problem = self.problem
        if not problem.load_s.any():
            return problem.seconds[jobs]
        return problem.seconds[jobs] + np.where(problem.function[jobs, None] != self._loaded, problem.load_s, 0.0)

    def near(self, jobs: Ints) -> NDArray[np.bool_]:
        """Return (n, A) the allowed accelerators if responders keep their own jobs (3.5, "Mixture of Job Sources")."""
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
        """Return the size of a job's input in bits."""
        return 8.0 * float(self.problem.input_bytes[job])

    def earliest_s(self, job: int, slot: int) -> float:
        """Return the time when `slot` could compute the job, ignoring its input: after its queue and the load."""
        load_s = float(self.problem.load_s[slot]) if self.problem.function[job] != self._loaded[slot] else 0.0
        return float(self.free_s[slot]) + load_s

    def send(self, job: int, slot: int, pieces: Pieces) -> None:
        """Plan the transfer of a job's input."""
        self.residual.take(int(self.problem.requester[job]), int(self.problem.responder[slot]), pieces)
        self._pieces.append((job, pieces))
        self._arrived_s[job] = pieces.end_s[-1]

    def queue(self, job: int, slot: int) -> None:
        """Plan the computation of a job, after its transfer and all jobs queued on `slot`."""
        begin_s = max(self.earliest_s(job, slot), float(self._arrived_s[job]))
        self.free_s[slot] = begin_s + float(self.problem.seconds[job, slot])
        self._loaded[slot] = self.problem.function[job]
        self._accelerator[job] = slot
        self._order.append(job)

    def plan(self, policy: str) -> BatchPlan:
        """Return the plan after all jobs are queued; of the jobs whose inputs have arrived, lower groups run first."""
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
    """Base of the paper's policies: a batch is planned stage by stage, around the transfers of earlier batches."""

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
        """Plan the batch in the bandwidth that earlier transfers leave, as it arrives after them (section 3.4)."""
        progress = Progress(view, earlier)
        self._plan(progress, rng)
        return progress.plan(self.name)

    @abstractmethod
    def _plan(self, progress: Progress, rng: np.random.Generator) -> None:
        """Plan every stage of `progress.problem`."""


#: Shares of one job, by accelerator; or of one accelerator, by job.
_Neighbours = dict[int, dict[int, float]]


def round_shares(relaxed: Relaxed, seconds: Floats, ready_s: Floats) -> Ints:
    """Return (n,) the accelerator of each job.

    `relaxed` is the solution of CIM-LP for `seconds` (n, a), inf = cannot run there, and `ready_s` (a,), the times when
    accelerators become free.
    """
    relaxed = pseudo_forest(relaxed, seconds, ready_s)
    jobs = len(seconds)
    # Line 2: jobs with one edge.  Each job first gets the accelerator with its largest share; lines 3 to 15 change the
    # accelerators of split jobs.
    accelerator = np.zeros(jobs, np.int64)
    by_share = np.argsort(relaxed.share, kind="stable")
    accelerator[relaxed.job[by_share]] = relaxed.slot[by_share]
    split = np.bincount(relaxed.job, minlength=jobs) > 1
    for job, slot in _Bigraph(relaxed, np.flatnonzero(split)).assignments():
        accelerator[job] = slot
    return accelerator


def pseudo_forest(relaxed: Relaxed, seconds: Floats, ready_s: Floats) -> Relaxed:
    """Return a solution in which each component has at most one cycle (Corollary 1, line 1).

    A vertex found by the simplex method already has this form.  In any other solution, each component with more edges
    than nodes is solved again, for its jobs and accelerators and only over its pairs.
    """
    jobs, slots = seconds.shape
    edges = scipy.sparse.coo_array(
        (np.ones(len(relaxed.job)), (relaxed.job, jobs + relaxed.slot)), shape=(jobs + slots,) * 2
    )
    count, component = scipy.sparse.csgraph.connected_components(edges, directed=False)
    too_many = np.bincount(component[relaxed.job], minlength=count) > np.bincount(component, minlength=count)
    kept = ~too_many[component[relaxed.job]]
    parts = [(relaxed.job[kept], relaxed.slot[kept], relaxed.share[kept])]
    for tangled in np.flatnonzero(too_many).tolist():
        own = component[relaxed.job] == tangled
        job, row = np.unique(relaxed.job[own], return_inverse=True)
        slot, column = np.unique(relaxed.slot[own], return_inverse=True)
        part = np.full((len(job), len(slot)), np.inf)
        part[row, column] = seconds[relaxed.job[own], relaxed.slot[own]]
        solved = vertex(part, ready_s[slot])
        parts.append((job[solved.job], slot[solved.slot], solved.share))
    return Relaxed(relaxed.seconds, *(np.concatenate(column) for column in zip(*parts, strict=True)))


class _Bigraph:
    """The split jobs and their accelerators: a pseudo-forest, in which each component has at most one cycle."""

    def __init__(self, relaxed: Relaxed, split: Ints) -> None:
        self._slots_of: _Neighbours = {job: {} for job in split.tolist()}
        self._jobs_of: _Neighbours = {}
        edges = zip(relaxed.job.tolist(), relaxed.slot.tolist(), relaxed.share.tolist(), strict=True)
        for job, slot, share in edges:
            if job in self._slots_of:
                self._slots_of[job][slot] = share
                self._jobs_of.setdefault(slot, {})[job] = share

    def assignments(self) -> Iterator[tuple[int, int]]:
        """Yield each split job and its accelerator, which no other split job gets."""
        # Lines 5 to 7.  A job next to a cycle loses its edge to it, may become a leaf, and so must be a root.
        roots: list[int] = []
        for job, slot in list(self._cycles()):
            yield job, slot
            for other in self._slots_of.pop(job):
                self._jobs_of[other].pop(job)
            for other in self._jobs_of.pop(slot):
                self._slots_of[other].pop(slot)
                roots.append(other)
        # Lines 8 to 14.  In a tree without such a job, any job can be the root.
        seen: set[int] = set()
        for root in [*roots, *self._slots_of]:
            if root in self._slots_of and root not in seen:
                yield from self._tree(root, seen)

    def _cycles(self) -> Iterator[tuple[int, int]]:
        """Yield the jobs of all cycles, each with the accelerator that follows it in one direction.

        Removing leaves until there are none leaves the cycles, as each component has at most one.
        """
        slots_of = {job: set(slots) for job, slots in self._slots_of.items()}
        jobs_of = {slot: set(jobs) for slot, jobs in self._jobs_of.items()}
        leaves = [(slot, jobs_of, slots_of) for slot, jobs in jobs_of.items() if len(jobs) == 1]
        while leaves:
            leaf, own, others = leaves.pop()
            for neighbour in own.pop(leaf):
                others[neighbour].discard(leaf)
                if len(others[neighbour]) == 1:
                    leaves.append((neighbour, others, own))
        while slots_of:
            job = min(slots_of)
            came_from = -1
            while job in slots_of:
                slot = min(slots_of.pop(job) - {came_from})
                yield job, slot
                came_from = slot
                job = min(jobs_of[slot] - {job})

    def _tree(self, root: int, seen: set[int]) -> Iterator[tuple[int, int]]:
        """Yield each job in the tree of `root` with the child accelerator that has its largest share."""
        seen.add(root)
        waiting = [(root, -1)]
        while waiting:
            job, parent = waiting.pop()
            children = {slot: share for slot, share in self._slots_of[job].items() if slot != parent}
            yield job, max(children, key=children.__getitem__)
            for slot in children:
                for below in self._jobs_of[slot]:
                    if below not in seen:
                        seen.add(below)
                        waiting.append((below, slot))


@dataclass(frozen=True, slots=True, kw_only=True)
class CimParams(Parameters):
    """Parameters of `cim`, shared by the other policies of the paper."""

    method: str = parameter(
        "one-shot",
        "How CIM-LP is solved: one-shot finds the least makespan and the vertex that has it; bisection is "
        "Algorithm 1 as published, which ends at any feasible vertex, and takes many times as long.",
        choices=["one-shot", "bisection"],
    )
    #: The paper does not give a value.
    epsilon: float = parameter(1e-3, "Relative accuracy at which bisection ends; above 0.", min=0.0, above=0.0)
    size_groups: int = parameter(
        1,
        "Number of groups of equally many jobs into which a batch is divided by job size; groups of smaller jobs are "
        "planned first, so that they do not wait for the makespan; 1 = no groups.",
        min=1,
    )


class Cim(StagedPolicy[CimParams]):
    """Place jobs by computation alone, shortest first on each accelerator.

    Inputs, which the model neglects, are sent as soon as possible in the order in which the jobs would start.
    """

    name = "cim"
    Params = CimParams

    def _plan(self, progress: Progress, rng: np.random.Generator) -> None:
        for jobs in stages(progress.problem, fastest_s(progress.problem), self._params.size_groups):
            plan_computation(progress, jobs, self._params, rng)


def plan_computation(progress: Progress, jobs: Ints, params: CimParams, rng: np.random.Generator) -> None:
    """Plan a stage of computation-intensive jobs (n,)."""
    problem = progress.problem
    seconds = progress.seconds(jobs)
    slots = place(seconds, free_s(progress, jobs), params, rng)
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


def place(seconds: Floats, ready_s: Floats, params: CimParams, rng: np.random.Generator) -> Ints:
    """Return (n,) the accelerator of each job by Algorithms 1 and 2; parameters as in `one_shot`."""
    if len(seconds) == 1:
        return np.array([int(np.argmin(seconds[0] + ready_s))])
    return round_shares(relax(seconds, ready_s, params, rng), seconds, ready_s)


def relax(seconds: Floats, ready_s: Floats, params: CimParams, rng: np.random.Generator) -> Relaxed:
    """Return the solution of CIM-LP by `params.method`; other parameters as in `one_shot`."""
    if params.method == "bisection":
        return bisection(seconds, ready_s, params.epsilon, rng)
    return one_shot(seconds, ready_s)


def free_s(progress: Progress, jobs: Ints) -> Floats:
    """Return (A,) c_j of section 3.4, the times when earlier jobs have ended and the batch has arrived."""
    ready_s: Floats = np.maximum(progress.free_s, progress.problem.release_s[jobs].max())
    return ready_s


def fastest_s(problem: BatchProblem) -> Floats:
    """Return (J,) the compute time of each job on its fastest accelerator."""
    fastest: Floats = problem.seconds.min(axis=1, initial=np.inf)
    return fastest
