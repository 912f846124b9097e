"""A batch of virtual machines: each holds its accelerators for all of its life, so none waits for another's slots.

Paper 000's make-span with one job for each place.  The jobs are alike, since they are made by one request: then the
places that complete first are an optimal choice, whatever else is there.
"""

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

HostT = TypeVar("HostT", bound=Hashable)


def hold(completion_s: Mapping[HostT, Sequence[float]], instances: int) -> tuple[dict[HostT, int], float]:
    """Return how many instances each host takes, and when the last of them completes.

    `completion_s` tells of each host when its first, second ... instance would complete.  The first places of a host
    are its best, so later ones count as no earlier than those before them.  Where there are too few places, all are
    taken.
    """
    taken: dict[HostT, int] = {}
    ends_s = 0.0
    # The position breaks ties in the order of the mapping, without comparing hosts.
    first = [(seconds[0], place, host) for place, (host, seconds) in enumerate(completion_s.items()) if seconds]
    heapq.heapify(first)
    for _ in range(instances):
        if not first:
            break
        end_s, place, host = first[0]
        ends_s = max(ends_s, end_s)
        taken[host] = taken.get(host, 0) + 1
        further = completion_s[host][taken[host] :]
        if further:
            heapq.heapreplace(first, (max(end_s, further[0]), place, host))
        else:
            heapq.heappop(first)
    return taken, ends_s
