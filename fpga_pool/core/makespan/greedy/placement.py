"""Placement of jobs in one pass, each where it would end first.

`hold` solves the problem with one job per place: the instances of one request, each of which keeps its accelerators
for all of its life.  The jobs are alike, so the places that complete first are an optimal choice.
"""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from fpga_pool.core.types import BatchProblem, Ints


def largest_first(problem: BatchProblem) -> Ints:
    """Return (J,) the jobs by group, then falling shortest compute time, then falling input."""
    fastest_s = problem.seconds.min(axis=1, initial=np.inf)
    return np.lexsort((-problem.input_bytes, -fastest_s, problem.group))


def place(problem: BatchProblem, order: Ints, ingress_cap_s: float = np.inf) -> Ints:
    """Return (J,) the accelerator of each job: in `order`, each where it would end first, as far as is known by then.

    An input is taken to arrive when all that was placed before it has crossed the same egress, or the same ingress.
    Ties go to the responder with the least ingress work, then to the lowest index.  Where nothing computes, egress
    takes the same time whatever the placement, and ingress alone decides: largest first on uniform machines.

    No responder gets more ingress than `ingress_cap_s` as long as another one has room.
    """
    from fpga_pool.core.makespan.kernels import joint

    computes = problem.seconds.any(where=np.isfinite(problem.seconds))
    accelerator = np.zeros(problem.jobs, np.int64)
    joint.place(
        problem.seconds, order, np.array(problem.requester), np.array(problem.responder), 8.0 * problem.input_bytes,
        1.0 / problem.egress_bps if computes else np.zeros(len(problem.egress_bps)), 1.0 / problem.ingress_bps,
        np.array(problem.local_host), np.array(problem.function), np.array(problem.loaded), np.array(problem.load_s),
        np.array(problem.release_s), np.array(problem.ready_s), np.zeros(len(problem.ingress_bps)), accelerator,
        ingress_cap_s,
    )  # fmt: skip
    return accelerator


# ---- Instances

HostT = TypeVar("HostT", bound=Hashable)


def hold(
    first_s: Mapping[HostT, float], further_s: Callable[[HostT], Sequence[float]], instances: int
) -> tuple[dict[HostT, int], float]:
    """Return how many instances each host takes, and when the last of them completes.

    `first_s` tells when the first instance of each host would complete, and `further_s`, which is asked only of hosts
    that take one, when the second, third ... would.  The first places of a host are its best, so later ones count as
    no earlier than those before them.  Where there are too few places, all are taken.
    """
    taken: dict[HostT, int] = {}
    ends_s = 0.0
    # The position breaks ties in the order of the mapping, without comparing hosts.  Of first places no more are taken
    # than there are instances: the order of all others does not matter.
    places = ((end_s, place, host) for place, (host, end_s) in enumerate(first_s.items()))
    nearest = heapq.nsmallest(instances, places)  # sorted, hence a heap
    for _ in range(instances):
        if not nearest:
            break
        end_s, place, host = nearest[0]
        ends_s = max(ends_s, end_s)
        taken[host] = taken.get(host, 0) + 1
        further = further_s(host)[taken[host] - 1 :]
        if further:
            heapq.heapreplace(nearest, (max(end_s, further[0]), place, host))
        else:
            heapq.heappop(nearest)
    return taken, ends_s
