"""A batch of virtual machines: each holds its accelerators for all of its life, so none waits for another's slots.

Paper 000's makespan with one job for each place.  The jobs are alike, since they are made by one request: then the
places that complete first are an optimal choice, whatever else is there.
"""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

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
