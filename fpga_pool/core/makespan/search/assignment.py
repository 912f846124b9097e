"""Assignment of jobs to unrelated machines, R||Cmax: CIM of the makespan paper (3.1), and NIM (3.2) as a special case.

Each job takes the machine where it costs least at prices from the dual of CIM-LP; a cap on the load keeps the machines
balanced.  With many jobs this alone is within half a percent of the bound, without a linear program, because small jobs
fill the gaps of large ones.  Ruin and recreate improves the result.

If only the network takes time, the machines are the responders.  At constant rates s_i / T all inputs end together
(Theorem 2), so the largest load of a link determines the makespan.  Egress loads do not depend on the placement, so the
task is to balance ingress (model (5)).  On uniform machines the solution of the linear program is known but does not
help to place whole jobs, so none is solved.
"""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.makespan.fluid import Segments, Transfers, moves_over_network
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: Load caps to try, as relative excess over the bound; with many jobs the best cap is rarely larger.
_CAPS = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.03, 0.05)
#: Above this number of pairs, caps are tried only while they help, as each takes long.
_MANY_PAIRS = 5_000_000
#: Shares of the way from the bound to the best makespan above which a machine counts as overloaded.  When one brings no
#: more improvement, the search restarts from the best assignment with the next.
_AMBITIONS = (0.9, 0.95, 0.98)
#: Steps of ruin and recreate between two checks of the budget, and the steps without success that end the search: a
#: constant, and per job.
_STEPS, _PATIENCE, _PATIENCE_PER_JOB = 100, 200, 20
#: Relative noise on prices when whole placements are repeated.
_NOISE = 0.001


@dataclass(slots=True, eq=False)
class Assignment:
    """A machine for each job (J,), and the resulting loads (M,), ready times included."""

    machine: Ints
    load_s: Floats

    @property
    def longest_s(self) -> float:
        """The completion time of the last machine."""
        return float(self.load_s.max(initial=0.0))


def earliest_completion(seconds: Floats, order: Ints, ready_s: Floats) -> Assignment:
    """Place jobs in `order` (J,), each where it ends first; `seconds` (J, M), `ready_s` (M,)."""
    return _fill(seconds, order, np.ones(len(ready_s)), -1.0, ready_s)


def improve(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    start: Assignment,
    enough_s: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Assignment:
    """Search for a shorter assignment than `start` until the budget is spent or `enough_s` is reached.

    `seconds` (J, M) is inf if a job cannot run; `order` (J,) has the largest job first; machines become free at
    `ready_s` (M,) and have `prices` (M,) per second, of which those that prove the bound are best.
    """
    prices = np.maximum(prices, 1e-6 * prices.max(initial=0.0))
    best = _best_cap(seconds, order, ready_s, prices, start, enough_s, budget)
    if best.longest_s <= enough_s or seconds.shape[1] < 2:
        return best
    return _ruin_and_recreate(seconds, order, ready_s, prices, best, enough_s, budget, rng)


def _best_cap(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    best: Assignment,
    enough_s: float,
    budget: Budget,
) -> Assignment:
    failures = 0
    for excess in _CAPS:
        if not budget.allows() or best.longest_s <= enough_s * (1 + excess):
            break
        found = _fill(seconds, order, prices, enough_s * (1 + excess), ready_s)
        budget.spend(seconds.size)
        if found.longest_s < best.longest_s:
            best, failures = found, 0
        else:
            failures += 1
        if failures > 1 and seconds.size > _MANY_PAIRS:
            break
    return best


def _ruin_and_recreate(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    best: Assignment,
    enough_s: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Assignment:
    from fpga_pool.core.makespan.kernels import loops

    jobs, machines = seconds.shape
    load_s, machine = best.load_s.copy(), best.machine.copy()
    best_s, best_machine = np.array([best.longest_s]), machine.copy()
    state = rng.integers(1, 2**63, 1, np.uint64)
    ready, fastest_s = np.array(ready_s), seconds.min(axis=1)
    moved = 6 * jobs // machines + 1
    for ambition in _AMBITIONS:
        idle = 0
        machine[:] = best_machine
        load_s[:] = _loads(seconds, machine, ready_s)
        while budget.allows() and idle < _PATIENCE + _PATIENCE_PER_JOB * jobs:
            before_s = best_s[0]
            steps = loops.ruin_and_recreate(
                seconds, fastest_s, order, prices, ready, enough_s, ambition, _STEPS, state, load_s, machine, best_s,
                best_machine,
            )  # fmt: skip
            budget.spend(_STEPS * (moved * machines + 3 * jobs))
            idle = 0 if best_s[0] < before_s else idle + _STEPS
            if steps < _STEPS:
                return Assignment(best_machine, _loads(seconds, best_machine, ready_s))
    return Assignment(best_machine, _loads(seconds, best_machine, ready_s))


def _loads(seconds: Floats, machine: Ints, ready_s: Floats) -> Floats:
    return ready_s + np.bincount(machine, seconds[np.arange(len(machine)), machine], len(ready_s))


def _fill(seconds: Floats, order: Ints, prices: Floats, cap_s: float, ready_s: Floats) -> Assignment:
    """Place jobs in `order`, each on the cheapest machine it does not fill above `cap_s`, else where it ends first."""
    from fpga_pool.core.makespan.kernels import loops

    load_s, machine = np.array(ready_s), np.zeros(len(order), np.int64)
    loops.fill(seconds, order, prices, cap_s, load_s, machine)
    return Assignment(machine, load_s)


# ---- Batches bound by the network


def is_network_bound(problem: BatchProblem) -> bool:
    """Return whether no job takes time to compute, and jobs wait for nothing but bandwidth."""
    waits = problem.release_s.any() or problem.load_s.any() or (problem.group != problem.group[:1]).any()
    longest_s = problem.seconds.max(initial=0.0)
    computes = longest_s > 0.0 if np.isfinite(longest_s) else problem.seconds.any(where=np.isfinite(problem.seconds))
    return not waits and not computes


def place_for_network(
    problem: BatchProblem, bound_s: float, gap: float, budget: Budget, rng: np.random.Generator
) -> Ints:
    """Return (J,) the accelerator of each job, with balanced ingress; within `gap` of the bound if possible."""
    hosts = np.unique(problem.responder)
    seconds = _ingress_s(problem, hosts)
    fastest_s = seconds.min(axis=1)
    order = np.argsort(-fastest_s, kind="stable")
    idle = np.zeros(len(hosts))
    best = earliest_completion(seconds, order, idle)
    enough_s = bound_s * (1 + gap)
    if best.longest_s > enough_s:
        finite = np.isfinite(problem.ingress_bps[hosts])
        prices = np.where(finite, problem.ingress_bps[hosts], problem.ingress_bps[hosts][finite].max(initial=1.0))
        best = improve(seconds, order, idle, prices / prices.sum(), best, enough_s, budget, rng)
    return _accelerators(problem, hosts, best)


def constant_rates(problem: BatchProblem, accelerator: Ints) -> Transfers:
    """Transfer all inputs from time 0 to a common end, each at a constant rate."""
    jobs = np.flatnonzero(moves_over_network(problem, accelerator))
    bits = 8.0 * problem.input_bytes[jobs]
    requester, responder = problem.requester[jobs], problem.responder[accelerator[jobs]]
    end_s = max(
        float((np.bincount(requester, bits, len(problem.egress_bps)) / problem.egress_bps).max(initial=0.0)),
        float((np.bincount(responder, bits, len(problem.ingress_bps)) / problem.ingress_bps).max(initial=0.0)),
    )
    arrived_s = np.array(problem.release_s)
    arrived_s[jobs] = end_s
    return Transfers(
        arrived_s, Segments(jobs, np.zeros(len(jobs)), np.full(len(jobs), end_s), floats(bits / max(end_s, 1e-300)))
    )


def _ingress_s(problem: BatchProblem, hosts: Ints) -> Floats:
    """Return (J, hosts) the seconds for which each input occupies the ingress of each responder; inf = cannot run."""
    sends_s = 8.0 * problem.input_bytes[:, None] / problem.ingress_bps[hosts]
    if (problem.local_host >= 0).any():
        sends_s[problem.local_host[problem.requester][:, None] == hosts] = 0.0
    if np.isinf(problem.seconds.max(initial=0.0)):
        unable = np.isinf(problem.seconds)
        for column, host in enumerate(hosts.tolist()):
            sends_s[unable[:, problem.responder == host].all(axis=1), column] = np.inf
    return sends_s


def _accelerators(problem: BatchProblem, hosts: Ints, best: Assignment) -> Ints:
    """Deal the jobs of each responder to its accelerators that are ready first, or else to one that can run them."""
    slots = np.lexsort((problem.ready_s, problem.responder))
    column = np.searchsorted(hosts, problem.responder[slots])
    first = np.searchsorted(column, np.arange(len(hosts)))
    is_first = problem.ready_s[slots] == problem.ready_s[slots[first]][column]
    firsts = np.bincount(column[is_first], minlength=len(hosts))
    jobs = np.argsort(best.machine, kind="stable")
    machine = best.machine[jobs]
    turn = np.arange(len(jobs)) - np.searchsorted(machine, machine)
    accelerator = np.empty(problem.jobs, np.int64)
    accelerator[jobs] = slots[first[machine] + turn % firsts[machine]]
    stuck = np.isinf(problem.seconds[np.arange(problem.jobs), accelerator])
    for job in np.flatnonzero(stuck).tolist():
        own = slots[column == best.machine[job]]
        accelerator[job] = own[np.argmax(np.isfinite(problem.seconds[job, own]))]
    return accelerator
