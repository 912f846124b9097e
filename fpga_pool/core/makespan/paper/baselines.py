"""The baselines of the makespan paper, section 5: shortest and largest job first."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.dispatch import Load, QueueEntry, Run, next_action
from fpga_pool.core.makespan.execution import complete_plan
from fpga_pool.core.makespan.fluid import (
    FluidNetwork,
    HeldNetwork,
    Transfers,
    moves_over_network,
    name_by_job,
    transfer_s,
)
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineParams(Parameters):
    """Parameters of `sjf` and `ljf`."""

    #: Section 5 lets a job be transmitted "even though it cannot start execution" and gives no number.  1 is the
    #: smallest number that overlaps transfer and computation; more would only bind jobs to accelerators earlier.
    prefetch: int = parameter(
        1,
        "Number of jobs that may be assigned to an accelerator beyond the one it computes, so that their "
        "inputs are transferred meanwhile; 0 = none.",
        min=0,
    )
    #: "Schedule as many resources as possible to this job" (section 5) may refer to the start of its transfer only, or
    #: to the whole transfer.
    top_up: bool = parameter(
        True,
        "Running transfers take bandwidth that becomes free; otherwise each keeps its initial rate, and "
        "waits until that is at least a tenth of its slower link.",
    )
    #: Not in the paper; the default reproduces its testbed figures (section 5.1).
    ties: str = parameter(
        "testbed",
        "Which of several available accelerators chooses first, before the lowest index: testbed is, for "
        "sjf, the one that would complete its job first, then lowest ingress; for ljf lowest ingress.",
        choices=["testbed", "lowest-ingress", "highest-ingress", "index"],
    )


#: Sort keys for accelerators that are available at the same time, computed from the ingress of their responders.
_TIES: Mapping[str, Callable[[float], float]] = {
    "testbed": lambda ingress_bps: ingress_bps,
    "lowest-ingress": lambda ingress_bps: ingress_bps,
    "highest-ingress": lambda ingress_bps: -ingress_bps,
    "index": lambda _: 0.0,
}


class _Baseline(ABC):
    """List scheduling by a preference."""

    name: str
    Params = BaselineParams

    def __init__(self, params: BaselineParams | None = None) -> None:
        self._params = params or BaselineParams()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic, `rng` is not used."""
        return self.meet(view, view, rng)

    def meet(self, believed: BatchProblem, actual: BatchProblem, rng: np.random.Generator) -> BatchPlan:
        """Return the plan if jobs are chosen by the times of `believed`, but actually take those of `actual`."""
        preference = self._preference(believed)
        jobs = ListScheduler(actual, preference, self._params.prefetch, self._params.top_up).run()
        return complete_plan(actual, *jobs, self.name)

    @abstractmethod
    def _preference(self, problem: BatchProblem) -> "Preference":
        """Return the preference by which accelerators choose their jobs."""


class Sjf(_Baseline):
    """An available accelerator gets the job that it would complete first.

    Of several available accelerators, the one that would complete its job first chooses first, as the testbed figure of
    section 5.1 implies; then the one with the lowest ingress, then with the lowest index.
    """

    name = "sjf"

    def _preference(self, problem: BatchProblem) -> "Preference":
        return _Shortest(problem, self._params.ties)


class Ljf(_Baseline):
    """An available accelerator gets the job whose completion takes longest, averaged over all accelerators.

    Of several available accelerators, the one with the lowest ingress chooses first: only that order reproduces the
    testbed figure of section 5.1.
    """

    name = "ljf"

    def _preference(self, problem: BatchProblem) -> "Preference":
        return _Largest(problem, self._params.ties)


class _Shortest:
    """Rank by completion time: the later of input arrival at the best rate and slot free and loaded, plus compute."""

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
    """Rank by decreasing average completion time, which depends on the job alone."""

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


# ---- List scheduling in time order: whenever an accelerator is available, it takes the waiting job that it prefers


class Preference(Protocol):
    """Determines which job an accelerator prefers, and which accelerator chooses first."""

    def rank(self, slot: int, jobs: Ints, now_s: float, free_s: float, loaded: int) -> Floats:
        """Return a rank per job, lowest first; inf = cannot run on `slot`.

        The slot will be free at `free_s` with the function `loaded`.
        """
        ...

    def turn(self, slot: int, rank: float) -> tuple[float, float, int]:
        """Return the sort key of an accelerator among those available; `rank` is the rank of its preferred job."""
        ...


class ListScheduler:
    """Simulates slots and network event by event, and assigns jobs as accelerators become available.

    An accelerator is available if no job is assigned to it, or, with `prefetch`, if fewer than that many jobs wait on
    it beyond the one it computes.  Only inputs that take time to move are fetched ahead.  The order of assignment is
    the priority of the transfers: running flows keep their rates and, with `top_up`, take bandwidth that becomes free.
    Until `ready_s` an accelerator belongs to earlier batches and is not available.
    """

    def __init__(self, problem: BatchProblem, preference: Preference, prefetch: int, top_up: bool = True) -> None:
        self._problem, self._preference, self._prefetch = problem, preference, prefetch
        network = FluidNetwork if top_up else HeldNetwork
        self._network = network(problem.egress_bps, problem.ingress_bps, problem.jobs)
        self._accelerator = np.zeros(problem.jobs, np.int64)
        #: Jobs in order of assignment; the indices are the numbers of their flows.
        self._order: list[int] = []
        self._releases = sorted(range(problem.jobs), key=problem.release_s.tolist().__getitem__, reverse=True)
        self._waiting = np.zeros(problem.jobs, np.bool_)
        self._unstarted = problem.jobs
        self._loaded = problem.loaded.tolist()
        self._queue: list[list[QueueEntry]] = [[] for _ in range(problem.accelerators)]
        self._busy_until_s = problem.ready_s.tolist()
        self._idle: set[int] = set()
        #: Accelerators that earlier batches have left, and those of them that may find a job since their last attempt.
        self._joined: set[int] = set()
        self._choosing: set[int] = set()
        self._wake = [(ready_s, slot) for slot, ready_s in enumerate(self._busy_until_s)]
        heapify(self._wake)
        self._moves: dict[int, NDArray[np.bool_]] = {}

    def run(self) -> tuple[Ints, Ints, Transfers]:
        """Return the accelerator of each job (J,), the jobs in order of assignment (J,), and the transfers."""
        while self._unstarted:
            changed = self._advance()
            self._dispatch(changed)
            while assigned := self._assign():
                self._dispatch(assigned)
        while np.isfinite(next_s := self._network.next_s()):
            self._network.advance(next_s)
        order = np.array(self._order, dtype=np.int64)
        return self._accelerator, order, name_by_job(self._problem, self._network, order)

    def _advance(self) -> set[int]:
        """Advance time to the next event; return the slots whose state it changed."""
        release_s = float(self._problem.release_s[self._releases[-1]]) if self._releases else np.inf
        wake_s = self._wake[0][0] if self._wake else np.inf
        next_s = min(self._network.next_s(), release_s, wake_s)
        if np.isinf(next_s):
            raise RuntimeError("jobs are left to schedule, but no event will occur")
        changed = self._stage(self._network.advance(max(next_s, self._network.now_s)))
        while self._wake and self._wake[0][0] <= self._network.now_s:
            slot = heappop(self._wake)[1]
            self._idle.add(slot)
            self._joined.add(slot)
            changed.add(slot)
        self._choosing |= changed
        self._release()
        return changed

    def _stage(self, flows: Ints) -> set[int]:
        """Mark the inputs that arrived; return their slots."""
        slots = set()
        for flow in flows.tolist():
            slot = int(self._accelerator[self._order[flow]])
            self._queue[slot] = [
                self._entry(flow, staged=True) if entry.order == flow else entry for entry in self._queue[slot]
            ]
            slots.add(slot)
        return slots

    def _entry(self, order: int, *, staged: bool) -> QueueEntry:
        job = self._order[order]
        return QueueEntry(key=str(job), order=order, function=str(self._problem.function[job]), staged=staged)

    def _release(self) -> None:
        release_s = self._problem.release_s
        while self._releases and release_s[self._releases[-1]] <= self._network.now_s:
            self._waiting[self._releases.pop()] = True
            self._choosing = set(self._joined)

    def _dispatch(self, slots: set[int]) -> None:
        """Start on idle slots the actions that `next_action` decides."""
        for slot in sorted(slots & self._idle):
            action = next_action(self._queue[slot], str(self._loaded[slot]))
            if isinstance(action, Load):
                self._loaded[slot] = int(action.function)
                self._occupy(slot, float(self._problem.load_s[slot]))
            elif isinstance(action, Run):
                self._queue[slot].remove(action.entry)
                self._unstarted -= 1
                self._occupy(slot, float(self._problem.seconds[int(action.entry.key), slot]))

    def _occupy(self, slot: int, seconds: float) -> None:
        self._idle.discard(slot)
        self._choosing.add(slot)
        self._busy_until_s[slot] = self._network.now_s + seconds
        heappush(self._wake, (self._busy_until_s[slot], slot))

    def _assign(self) -> set[int]:
        """Give at most one job to each available accelerator; return those that got one."""
        jobs = self._candidates()
        slots = [slot for slot in sorted(self._choosing) if self._available(slot)]
        self._choosing.clear()
        if len(jobs) == 0 or not slots:
            return set()
        wishes = {slot: self._wishes(slot, jobs, len(slots)) for slot in slots}
        heap = [(self._preference.turn(slot, wish[-1][0]), slot) for slot, wish in wishes.items() if wish]
        heapify(heap)
        assigned = set()
        while heap:
            slot = heap[0][1]
            wish = wishes[slot]
            if self._waiting[wish[-1][1]]:
                self._give(slot, wish[-1][1])
                assigned.add(slot)
                heappop(heap)
                continue
            while wish and not self._waiting[wish[-1][1]]:
                wish.pop()
            if wish:
                heapreplace(heap, (self._preference.turn(slot, wish[-1][0]), slot))
            else:
                heappop(heap)
        # When the last job of a group is assigned, accelerators that found no job may find one of the next group.
        self._choosing = assigned if self._waiting[jobs].any() else set(self._joined)
        return assigned

    def _candidates(self) -> Ints:
        """Return the waiting jobs of the lowest group that has any; all are released."""
        jobs = np.flatnonzero(self._waiting)
        group = self._problem.group[jobs]
        lowest: Ints = jobs[group == group.min(initial=np.iinfo(np.int64).max)]
        return lowest

    def _available(self, slot: int) -> bool:
        if slot not in self._joined:
            return False
        if self._prefetch == 0:
            return slot in self._idle and not self._queue[slot]
        return len(self._queue[slot]) < self._prefetch

    def _wishes(self, slot: int, jobs: Ints, count: int) -> list[tuple[float, int]]:
        """Return (rank, job) of the `count` jobs that the slot prefers, best last."""
        if self._queue[slot] or slot not in self._idle:
            jobs = jobs[self._moves_to(slot)[jobs]]
        if len(jobs) == 0:
            return []
        loaded = int(self._queue[slot][-1].function) if self._queue[slot] else self._loaded[slot]
        rank = self._preference.rank(slot, jobs, self._network.now_s, self._free_s(slot), loaded)
        best = np.argsort(rank, kind="stable")[:count] if count > 1 else np.argmin(rank, keepdims=True)
        best = best[np.isfinite(rank[best])][::-1]
        return list(zip(rank[best].tolist(), jobs[best].tolist(), strict=True))

    def _moves_to(self, slot: int) -> NDArray[np.bool_]:
        """Return (J,) whether the input of each job takes time to reach the slot."""
        responder = int(self._problem.responder[slot])
        if responder not in self._moves:
            self._moves[responder] = moves_over_network(self._problem, np.full(self._problem.jobs, slot))
        return self._moves[responder]

    def _free_s(self, slot: int) -> float:
        """Return the time when the slot has computed its queue, ignoring transfers and loads."""
        queued_s = sum(float(self._problem.seconds[int(entry.key), slot]) for entry in self._queue[slot])
        return float(max(self._network.now_s, self._busy_until_s[slot])) + queued_s

    def _give(self, slot: int, job: int) -> None:
        problem, flow = self._problem, len(self._order)
        self._order.append(job)
        self._accelerator[job] = slot
        self._waiting[job] = False
        moves = bool(self._moves_to(slot)[job])
        if moves:
            bits = np.array([8.0 * float(problem.input_bytes[job])])
            self._network.add(np.array([flow]), problem.requester[[job]], problem.responder[[slot]], bits)
        self._queue[slot].append(self._entry(flow, staged=not moves))
