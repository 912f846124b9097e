"""Batches of which only the network takes time: NIM of the makespan paper, 3.2, solved as jobs to uniform machines.

At constant rates s_i / T all inputs end together (Theorem 2), so of a placement only the largest load of a link counts;
the egress loads are the same for all placements.  Left is to balance ingress: machines are responders (model (5)).
No linear program is needed: on uniform machines its solution is known, and it says nothing about whole jobs.
"""

import numpy as np

from fpga_pool.core.makespan.assignment import Assignment, earliest_completion, improve
from fpga_pool.core.makespan.budget import Budget
from fpga_pool.core.makespan.compiled import Loops
from fpga_pool.core.makespan.fluid import Segments, Transfers, moves_over_network
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats


def is_network_bound(problem: BatchProblem) -> bool:
    """Say whether nothing computes, and nothing else than bandwidth has to be waited for."""
    waits = problem.release_s.any() or problem.load_s.any() or (problem.group != problem.group[:1]).any()
    longest_s = problem.seconds.max(initial=0.0)
    computes = longest_s > 0.0 if np.isfinite(longest_s) else problem.seconds.any(where=np.isfinite(problem.seconds))
    return not waits and not computes


def place_for_network(
    problem: BatchProblem, bound_s: float, gap: float, budget: Budget, rng: np.random.Generator, loops: Loops | None
) -> Ints:
    """Return the accelerator of each job (J,) with the ingress balanced, within `gap` of the bound if possible."""
    hosts = np.unique(problem.responder)
    seconds = _ingress_s(problem, hosts)
    fastest_s = seconds.min(axis=1)
    order = np.argsort(-fastest_s, kind="stable")
    idle = np.zeros(len(hosts))
    best = earliest_completion(seconds, order, idle, loops)
    enough_s = bound_s * (1 + gap)
    if best.longest_s > enough_s:
        finite = np.isfinite(problem.ingress_bps[hosts])
        prices = np.where(finite, problem.ingress_bps[hosts], problem.ingress_bps[hosts][finite].max(initial=1.0))
        best = improve(seconds, order, idle, prices / prices.sum(), best, enough_s, budget, rng, loops)
    return _accelerators(problem, hosts, best)


def constant_rates(problem: BatchProblem, accelerator: Ints) -> Transfers:
    """Move all inputs from the start to the same end, each at its constant rate."""
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
    """Return (J, hosts) how long each input keeps the ingress of each responder busy; inf = cannot run there."""
    sends_s = 8.0 * problem.input_bytes[:, None] / problem.ingress_bps[hosts]
    if (problem.local_host >= 0).any():
        sends_s[problem.local_host[problem.requester][:, None] == hosts] = 0.0
    if np.isinf(problem.seconds.max(initial=0.0)):
        unable = np.isinf(problem.seconds)
        for column, host in enumerate(hosts.tolist()):
            sends_s[unable[:, problem.responder == host].all(axis=1), column] = np.inf
    return sends_s


def _accelerators(problem: BatchProblem, hosts: Ints, best: Assignment) -> Ints:
    """Deal the jobs of each responder to its accelerators that are ready first; others go where they can run."""
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
