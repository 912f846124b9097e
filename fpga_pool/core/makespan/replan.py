"""Re-planning of a plan under way: only jobs that have not started are moved (makespan paper, section 3.4, extended).

There are three methods, each tried only if the previous one leaves something to gain:

1. *Append*: jobs without a place are queued behind the others, where they end first in the residual bandwidth.
2. *Balance*: jobs are moved away from the accelerator that ends last, or exchanged, one at a time.
3. *Search*: the policy makes a new plan for all jobs that have not started.

A result is preferred to the first one only if it is shorter by more than a given share, and no group (a batch, in a
pool) ends later.  So no group is ever worse off than if all jobs had been appended.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.makespan.bounds import LowerBound, simple_bound
from fpga_pool.core.makespan.execution import Schedule, as_plan, execute, with_results
from fpga_pool.core.makespan.fluid import Segments
from fpga_pool.core.makespan.greedy import even_work_s, largest_first
from fpga_pool.core.makespan.residual import Piece, ResidualLinks
from fpga_pool.core.makespan.search.balance import balance, earliest_arrivals_s
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.makespan.underway import Bools, Underway
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints

#: A search is worthwhile if the first answer exceeds the acceptable makespan by this factor.
_WORTH_A_SEARCH = 1.05
#: Finish times with a smaller relative difference than this are equal.
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanParams(Parameters):
    """Parameters of re-planning."""

    #: The default takes about ten milliseconds for 1000 jobs on 200 accelerators.
    effort: int = parameter(2, "Effort of rebalancing, in millions of job-accelerator pairs; 0 = only append.", min=0)
    gain: float = parameter(0.01, "Minimum relative reduction of the remaining makespan for jobs to be moved.", min=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replan:
    """A plan for all jobs that have not started, and its differences from the plan under way."""

    plan: BatchPlan
    #: (J,) jobs that get another accelerator than before, behind the jobs that stay there.
    placed: Bools
    #: (J,) jobs that keep their accelerator but whose transfers have other times or rates.
    retimed: Bools
    #: "append", "balance" or "search".
    method: str


#: Plans a whole problem, for the third method.
Search = Callable[[BatchProblem], BatchPlan]


def replan(
    underway: Underway,
    params: ReplanParams | None = None,
    search: Search | None = None,
) -> Replan:
    """Return the plan for the jobs that have not started; deterministic if `search` is.

    `params` limits the effort and sets the gain that justifies a change; `search` plans the whole problem again if that
    is worthwhile.
    """
    params = params or ReplanParams()
    problem = underway.problem
    bound = _bound(problem)
    best = first = _appended(underway)
    for found in _better(underway, first, bound.seconds * (1 + params.gain), params, search):
        shorter = found.schedule.makespan_s < best.schedule.makespan_s
        pays = found.schedule.makespan_s < first.schedule.makespan_s * (1 - params.gain)
        if shorter and pays and not _delays_a_group(problem, first.schedule, found.schedule):
            best = found
    placed = best.schedule.accelerator != underway.accelerator
    # Transfers that deviate from their plan always get their new plan, which they can keep.
    astray = underway.astray & underway.retime
    return Replan(
        plan=as_plan(problem, with_results(problem, best.schedule), bound, "replan"),
        placed=placed,
        retimed=~placed & (astray | _differ(underway.transfers, best.schedule.segments, problem.jobs)),
        method=best.method,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    schedule: Schedule
    method: str


def _better(
    underway: Underway,
    first: _Answer,
    enough_s: float,
    params: ReplanParams,
    search: Search | None,
) -> Iterator[_Answer]:
    """Yield further answers while there is something to gain and effort is left."""
    if first.schedule.makespan_s <= enough_s or params.effort == 0 or not _movable(underway).any():
        return
    budget = Budget(effort=params.effort)
    for movable in (~underway.kept, _movable(underway)):
        balanced = balance(underway.problem, first.schedule, movable, enough_s, budget)
        if (balanced != first.schedule.accelerator).any():
            answer = _Answer(_evaluated(underway, balanced), "balance")
            yield answer
            if answer.schedule.makespan_s <= enough_s:
                return
    if search is not None and first.schedule.makespan_s > enough_s * _WORTH_A_SEARCH and budget.allows():
        found = search(_pinned(underway))
        yield _Answer(_evaluated(underway, np.array(found.accelerator)), "search")


def _differ(before: Segments, after: Segments, jobs: int) -> Bools:
    """Return (J,) whether the transfer of each job begins or ends at another time."""
    differ = np.zeros(jobs, np.bool_)
    for name in ("begin_s", "end_s"):
        was_s, is_s = (np.bincount(pieces.flow, getattr(pieces, name), jobs) for pieces in (before, after))
        differ |= ~np.isclose(was_s, is_s, rtol=1e-9, atol=1e-9)
    return differ


def _movable(underway: Underway) -> Bools:
    return ~(underway.begun & underway.kept)


def _bound(problem: BatchProblem) -> LowerBound:
    """Return a one-pass bound: the largest of those by single jobs, links, and arbitrarily divided compute."""
    work_s = even_work_s(problem.seconds.min(axis=1), problem.ready_s)
    return LowerBound(max(simple_bound(problem).seconds, work_s))


def _delays_a_group(problem: BatchProblem, first: Schedule, found: Schedule) -> bool:
    groups, number = np.unique(problem.group, return_inverse=True)
    before_s, after_s = (_last_end_s(problem, schedule, number, len(groups)) for schedule in (first, found))
    return bool((after_s > before_s * (1 + _EQUAL)).any())


def _last_end_s(problem: BatchProblem, schedule: Schedule, group: Ints, groups: int) -> Floats:
    end_s = schedule.start_s + problem.seconds[np.arange(problem.jobs), schedule.accelerator]
    last_s = np.zeros(groups)
    np.maximum.at(last_s, group, end_s)
    return last_s


def _pinned(underway: Underway) -> BatchProblem:
    """Return the problem in which each job whose transfer has begun can run only on its present accelerator."""
    problem = underway.problem
    stays = np.flatnonzero(~_movable(underway))
    seconds = np.array(problem.seconds)
    seconds[stays] = np.inf
    seconds[stays, underway.accelerator[stays]] = problem.seconds[stays, underway.accelerator[stays]]
    seconds.setflags(write=False)
    return replace(problem, seconds=seconds)


# Evaluation of a given placement -----------------------------------------------------------------------------------


def _evaluated(underway: Underway, accelerator: Ints) -> Schedule:
    """Return the schedule if jobs run on `accelerator` (J,): jobs that stay, in planned order, then the others."""
    moved = accelerator != underway.accelerator
    network = _Network(underway, ~moved)
    order = largest_first(underway.problem)
    for job in order[moved[order]].tolist():
        network.send(job, int(accelerator[job]))
    return network.schedule(accelerator, _queue_order(underway, moved, order))


def _queue_order(underway: Underway, moved: Bools, order: Ints) -> Ints:
    """Return the jobs (J,) in queue order: those that stay, by planned start, then the others in `order`."""
    staying = np.flatnonzero(~moved)
    by_start = staying[np.argsort(underway.start_s[staying], kind="stable")]
    return np.concatenate((by_start, order[moved[order]]))


class _Network:
    """Planned transfers that stay, and others in the bandwidth that these leave."""

    def __init__(self, underway: Underway, stays: Bools) -> None:
        problem = underway.problem
        self._problem = problem
        #: (J,) the arrival time of each input that is planned so far; its release time if it does not move.
        self.arrived_s = np.array(problem.release_s)
        kept = underway.transfers
        fixed = stays & ((underway.begun & ~underway.astray) | (not underway.retime))
        pieces = fixed[kept.flow]
        self._kept = Segments(kept.flow[pieces], kept.begin_s[pieces], kept.end_s[pieces], kept.bps[pieces])
        self._sent: list[tuple[int, Sequence[Piece]]] = []
        job = self._kept.flow
        self._residual = ResidualLinks(
            problem.egress_bps, problem.ingress_bps,
            problem.requester[job], problem.responder[underway.accelerator[job]],
            self._kept.begin_s, self._kept.end_s, self._kept.bps,
        )  # fmt: skip
        np.maximum.at(self.arrived_s, job, self._kept.end_s)
        if underway.retime:
            self._send_again(underway, np.flatnonzero(stays & ~fixed))

    def _send_again(self, underway: Underway, jobs: Ints) -> None:
        """Plan the transfers of `jobs` (n,) again, in the order of their planned arrivals."""
        planned_s = np.array(underway.problem.release_s)
        np.maximum.at(planned_s, underway.transfers.flow, underway.transfers.end_s)
        for job in jobs[np.argsort(planned_s[jobs], kind="stable")].tolist():
            self.send(job, int(underway.accelerator[job]))

    def arrival_s(self, job: int, slot: int, before_s: float = np.inf) -> float:
        """Return when the input would arrive at the host of `slot`; inf if it moves, but not before `before_s`."""
        problem, release_s = self._problem, float(self._problem.release_s[job])
        requester, responder = int(problem.requester[job]), int(problem.responder[slot])
        if not self._moves(job, requester, responder):
            return release_s
        return self._residual.arrival_s(requester, responder, release_s, self._bits(job), before_s)

    def left_s(self, job: int) -> float:
        """Return the time when the input would have left its requester if ingress were unlimited."""
        problem, release_s = self._problem, float(self._problem.release_s[job])
        if problem.input_bytes[job] == 0:
            return release_s
        return self._residual.left_s(int(problem.requester[job]), release_s, self._bits(job))

    def send(self, job: int, slot: int) -> None:
        """Plan the transfer to the host of `slot` as soon as possible."""
        problem = self._problem
        requester, responder = int(problem.requester[job]), int(problem.responder[slot])
        if self._moves(job, requester, responder):
            pieces = self._residual.send(requester, responder, float(problem.release_s[job]), self._bits(job))
            self._sent.append((job, pieces))
            self.arrived_s[job] = pieces[-1].end_s

    def _bits(self, job: int) -> float:
        return 8.0 * float(self._problem.input_bytes[job])

    def _moves(self, job: int, requester: int, responder: int) -> bool:
        """Return whether a transfer takes time."""
        problem = self._problem
        limited = problem.egress_bps[requester] < np.inf or problem.ingress_bps[responder] < np.inf
        return bool(problem.input_bytes[job] > 0 and limited and problem.local_host[requester] != responder)

    def starts_s(self, accelerator: Ints, order: Ints) -> Floats:
        """Return (J,) the start time of each job in `order`, given the transfers planned here."""
        return execute(self._problem, accelerator, order, self.arrived_s)

    def schedule(self, accelerator: Ints, order: Ints) -> Schedule:
        """Return the schedule, given the transfers planned here."""
        problem = self._problem
        start_s = self.starts_s(accelerator, order)
        end_s = start_s + problem.seconds[np.arange(problem.jobs), accelerator]
        return Schedule(accelerator, start_s, self._segments(), float(end_s.max(initial=0.0)))

    def _segments(self) -> Segments:
        columns = [(self._kept.flow, self._kept.begin_s, self._kept.end_s, self._kept.bps)]
        sent = np.array([(job, *piece) for job, pieces in self._sent for piece in pieces]).reshape(-1, 4)
        columns.append((sent[:, 0].astype(np.int64), sent[:, 1], sent[:, 2], sent[:, 3]))
        flow, begin_s, end_s, bps = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.lexsort((begin_s, flow))
        return Segments(flow[order], begin_s[order], end_s[order], bps[order])


# Append ------------------------------------------------------------------------------------------------------------


def _appended(underway: Underway) -> _Answer:
    """Return the first answer: jobs without a place, largest first, each behind the queue where it ends first."""
    problem, kept = underway.problem, underway.kept
    accelerator = np.array(underway.accelerator)
    network = _Network(underway, kept)
    order = largest_first(problem)
    waiting = order[~kept[order]]
    queues = _Queues(underway, kept, network, waiting)
    for place, job in enumerate(waiting.tolist()):
        accelerator[job] = queues.append(place, job)
    moved = ~kept
    return _Answer(network.schedule(accelerator, _queue_order(underway, moved, order)), "append")


class _Queues:
    """The time when each accelerator ends its queue, and the function loaded then; appends `waiting` jobs (n,)."""

    def __init__(self, underway: Underway, kept: Bools, network: _Network, waiting: Ints) -> None:
        problem = self._problem = underway.problem
        self._network = network
        self.free_s, self.loaded = _ends(underway, kept, network)
        self._loads = bool(problem.load_s.any())
        self._alone_s = earliest_arrivals_s(problem, waiting)
        self._away = problem.responder != problem.local_host[problem.requester[waiting], None]
        self._host = problem.responder.tolist()

    def append(self, place: int, job: int) -> int:
        """Append a job, at `place` in `waiting`, to the accelerator where it ends first; return that accelerator.

        Accelerators are evaluated by the earliest conceivable end of the job, and only until no further one can be
        better; ties go to the lowest index.
        """
        problem = self._problem
        seconds = problem.seconds[job]
        ready_s = self.free_s
        if self._loads:
            ready_s = ready_s + np.where(self.loaded != problem.function[job], problem.load_s, 0.0)
        # No input arrives before it has left its requester.
        left_s = np.where(self._away[place], self._network.left_s(job), 0.0)
        earliest_s = np.maximum(np.maximum(ready_s, left_s), self._alone_s[place]) + seconds
        best, best_s = -1, np.inf
        arrivals_s: dict[int, float] = {}
        for slot in np.argsort(earliest_s, kind="stable").tolist():
            if earliest_s[slot] >= best_s * (1 - _EQUAL) and best >= 0:
                break
            host = self._host[slot]
            if host not in arrivals_s:
                arrivals_s[host] = self._network.arrival_s(job, slot, best_s)
            end_s = max(float(ready_s[slot]), arrivals_s[host]) + float(seconds[slot])
            if end_s < best_s:
                best, best_s = slot, end_s
        self._network.send(job, best)
        self.free_s[best], self.loaded[best] = best_s, problem.function[job]
        return best


def _ends(underway: Underway, kept: Bools, network: _Network) -> tuple[Floats, Ints]:
    """Return (A,) the times when accelerators end the jobs that stay, and (A,) the functions loaded then."""
    problem, slots = underway.problem, underway.accelerator
    free_s, loaded = np.array(problem.ready_s), np.array(problem.loaded)
    jobs = np.flatnonzero(kept)
    jobs = jobs[np.argsort(underway.start_s[jobs], kind="stable")]
    end_s = network.starts_s(slots, jobs)[jobs] + problem.seconds[jobs, slots[jobs]]
    last = jobs[by_end := np.argsort(end_s, kind="stable")]
    free_s[slots[last]] = end_s[by_end]
    loaded[slots[last]] = problem.function[last]
    return free_s, loaded
