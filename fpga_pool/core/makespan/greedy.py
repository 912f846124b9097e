"""One-pass planners: `Ect`, and `greedy_plan` for batches that end before a search would pay off.

Both take jobs largest first and give each the accelerator that ends it first.  `greedy_plan` uses plain lists and no
search, and sends inputs one after the other on every link.  It takes about a millisecond per hundred jobs.
"""

from math import inf

import numpy as np

from fpga_pool.core.makespan.bounds import LowerBound, job_path_s, links_s
from fpga_pool.core.makespan.execution import Schedule, as_plan, complete_plan, schedule
from fpga_pool.core.makespan.fluid import Segments, Transfers, transmit
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints


class Ect:
    """Place jobs by decreasing shortest compute time, each on the accelerator that would end it first.

    Transfers have their priorities, and queues their jobs, in the same order.  Inputs of long jobs are sent first, so
    little computation remains when the last input arrives.
    """

    name = "ect"

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic, `rng` is not used."""
        order = largest_first(view)
        accelerator = place(view, order)
        transfers = transmit(view, accelerator, order)
        return complete_plan(view, accelerator, order, transfers, self.name)


#: Minimum effort for which a search is worthwhile.
_LEAST_EFFORT = 5
#: Approximate milliseconds per unit of work.
_UNIT_MS = 1.0
#: Minimum milliseconds that re-planning takes per job.
_REPLAN_JOB_MS = 0.1


def greedy_plan(problem: BatchProblem, policy: str) -> BatchPlan:
    """Return a plan that is made in almost no time."""
    order = largest_first(problem)
    placing = _Placing(problem)
    for job in order.tolist():
        placing.place(job)
    accelerator = np.array(placing.accelerator, dtype=np.int64)
    pieces = sorted(placing.pieces)
    columns = [np.array(column) for column in zip(*pieces, strict=True)] if pieces else [np.zeros(0)] * 4
    segments = Segments(columns[0].astype(np.int64), *columns[1:])
    if placing.in_turn and not problem.shares_ports:
        found = Schedule(accelerator, np.array(placing.start_s), segments, max(placing.end_s, default=0.0))
    else:  # jobs may run in the order of arrival instead, and loads of a port take turns
        found = schedule(problem, accelerator, order, Transfers(np.array(placing.arrived_s), segments))
    return as_plan(problem, found, LowerBound(simple_bound_s(problem)), policy)


class _Placing:
    """State of hosts and links after the jobs placed so far."""

    def __init__(self, problem: BatchProblem) -> None:
        jobs = problem.jobs
        self._seconds: list[list[float]] = problem.seconds.tolist()
        self._bits = (8.0 * problem.input_bytes).tolist()
        self._requester, self._function = problem.requester.tolist(), problem.function.tolist()
        self._release_s = problem.release_s.tolist()
        self._slots = list(enumerate(problem.responder.tolist()))
        self._hosts = sorted(set(problem.responder.tolist()))
        self._local_host = problem.local_host.tolist()
        self._egress_bps, self._ingress_bps = problem.egress_bps.tolist(), problem.ingress_bps.tolist()
        self._load_s, self._loaded = problem.load_s.tolist(), problem.loaded.tolist()
        self._free_s: list[float] = problem.free_s.tolist()
        #: The port of each slot; for each port, the end of its uninterrupted loads from the start on.
        self._port, self._port_s = problem.port.tolist(), dict.fromkeys(problem.port.tolist(), -problem.head_start_s)
        self._egress_free_s = [0.0] * len(self._egress_bps)
        self._ingress_free_s = [0.0] * len(self._ingress_bps)
        self._last_arrival_s = [0.0] * len(self._slots)
        self._jobs = [0] * len(self._slots)
        #: (J,) the decisions for the jobs placed so far.
        self.accelerator, self.start_s, self.end_s = [0] * jobs, [0.0] * jobs, [0.0] * jobs
        self.arrived_s: list[float] = problem.release_s.tolist()
        #: Job, begin, end and rate of each transfer.
        self.pieces: list[tuple[int, float, float, float]] = []
        #: Whether the inputs arrive on every slot in the order of its queue.
        self.in_turn = True

    def place(self, job: int) -> None:
        """Place a job where it ends first; ties go to the slot with the fewest jobs, then to the lowest index."""
        arrives_s = self._arrivals_s(job)
        seconds, function = self._seconds[job], self._function[job]
        free_s, loaded, load_s, jobs = self._free_s, self._loaded, self._load_s, self._jobs
        port, port_s = self._port, self._port_s
        best, best_s = -1, inf
        for slot, host in self._slots:
            ready_s = free_s[slot]
            if loaded[slot] != function:
                ready_s = max(ready_s, port_s[port[slot]]) + load_s[slot]
            arrival_s = arrives_s[host]
            end_s = (ready_s if ready_s > arrival_s else arrival_s) + seconds[slot]
            if end_s < best_s or (end_s == best_s and jobs[slot] < jobs[best]):
                best, best_s = slot, end_s
        host = self._slots[best][1]
        self._send(job, host, arrives_s[host])
        self.accelerator[job], self.start_s[job], self.end_s[job] = best, best_s - seconds[best], best_s
        self.in_turn &= arrives_s[host] >= self._last_arrival_s[best] and seconds[best] > 0.0
        self._last_arrival_s[best] = arrives_s[host]
        if loaded[best] != function and free_s[best] <= port_s[port[best]]:
            port_s[port[best]] += load_s[best]
        free_s[best], loaded[best] = best_s, function
        jobs[best] += 1

    def _arrivals_s(self, job: int) -> dict[int, float]:
        """Return the time when the input would arrive at each responder if it were sent next."""
        bits, requester, release_s = self._bits[job], self._requester[job], self._release_s[job]
        if bits == 0.0:
            return dict.fromkeys(self._hosts, release_s)
        local, egress_bps = self._local_host[requester], self._egress_bps[requester]
        from_s = max(release_s, self._egress_free_s[requester])
        return {
            host: release_s
            if host == local
            else max(from_s, self._ingress_free_s[host]) + bits / min(egress_bps, self._ingress_bps[host])
            for host in self._hosts
        }

    def _send(self, job: int, host: int, arrives_s: float) -> None:
        requester, bits = self._requester[job], self._bits[job]
        bps = min(self._egress_bps[requester], self._ingress_bps[host])
        if bits == 0.0 or host == self._local_host[requester] or bps == inf:
            return
        begin_s = max(self._release_s[job], self._egress_free_s[requester], self._ingress_free_s[host])
        if arrives_s <= begin_s:
            arrives_s = float(np.nextafter(begin_s, inf))
        self.pieces.append((job, begin_s, arrives_s, bits / (arrives_s - begin_s)))
        self._egress_free_s[requester] = self._ingress_free_s[host] = arrives_s
        self.arrived_s[job] = arrives_s


def simple_bound_s(problem: BatchProblem) -> float:
    """Return the largest of three one-pass bounds: by single jobs, by arbitrarily divided compute, and by links."""
    if problem.jobs == 0:
        return 0.0
    fastest_s = problem.seconds.min(axis=1)
    alone_s = float((problem.release_s + fastest_s).max())
    return max(alone_s, even_work_s(fastest_s, problem.ready_s), links_s(problem))


def even_work_s(fastest_s: Floats, ready_s: Floats) -> float:
    """Return the end of work (J,) that is divided arbitrarily among machines free from `ready_s` (M,) on (1a')."""
    free_s = np.sort(ready_s)
    # The work that the machines with earlier ready times have done by each ready time.
    done_s = np.arange(len(free_s)) * free_s - np.append(0.0, np.cumsum(free_s)[:-1])
    machines = int(np.searchsorted(done_s, work_s := float(fastest_s.sum())))
    return (work_s + float(free_s[:machines].sum())) / machines if machines else 0.0


def fitting_effort(problem: BatchProblem, share: float, at_most: int) -> int:
    """Return the search effort that takes at most a `share` of the batch's duration; 0 = do not search."""
    effort = min(at_most, int(1e3 * share * simple_bound_s(problem) / _UNIT_MS))
    return effort if effort >= _LEAST_EFFORT else 0


def over_in_a_moment(problem: BatchProblem, share: float) -> bool:
    """Return whether the batch under way would end before planning it again could pay off."""
    left_s = max(simple_bound_s(problem), job_path_s(problem), float(problem.ready_s.max(initial=0.0)))
    return 1e3 * share * left_s < _REPLAN_JOB_MS * problem.jobs


# ---- Placement in one pass, each job where it would end first


def largest_first(problem: BatchProblem) -> Ints:
    """Return (J,) the jobs by group, then decreasing shortest compute time, then decreasing input size."""
    fastest_s = problem.seconds.min(axis=1, initial=np.inf)
    return np.lexsort((-problem.input_bytes, -fastest_s, problem.group))


def place(problem: BatchProblem, order: Ints, ingress_cap_s: float = np.inf) -> Ints:
    """Return (J,) the accelerator of each job: in `order`, each where it would end first given the jobs before it.

    An input is assumed to arrive after all inputs placed before it on the same egress, and on the same ingress.  Ties
    go to the responder with the least ingress work, then to the lowest index.  If no job takes time to compute, egress
    takes the same time whatever the placement, so ingress alone decides: largest first on uniform machines.

    The first loads of a configuration port are assumed to follow one another without a gap.  No responder gets more
    ingress than `ingress_cap_s` while another one has room.
    """
    from fpga_pool.core.makespan.kernels import joint

    computes = problem.seconds.any(where=np.isfinite(problem.seconds))
    accelerator = np.zeros(problem.jobs, np.int64)
    joint.place(
        problem.seconds, order, np.array(problem.requester), np.array(problem.responder), 8.0 * problem.input_bytes,
        1.0 / problem.egress_bps if computes else np.zeros(len(problem.egress_bps)), 1.0 / problem.ingress_bps,
        np.array(problem.local_host), np.array(problem.function), np.array(problem.loaded), np.array(problem.load_s),
        np.array(problem.release_s), problem.free_s, np.zeros(len(problem.ingress_bps)),
        np.unique(problem.port, return_inverse=True)[1], accelerator, ingress_cap_s,
    )  # fmt: skip
    return accelerator
