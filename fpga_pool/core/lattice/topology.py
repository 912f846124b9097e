"""Links between the FPGAs of an enclosure, and the choice of FPGAs that are linked as a task requests.

Members are the indices of FPGAs within one enclosure.  On a line each is linked to the next one; on a ring the last is
also linked to the first.  A choice leaves fragments: the sizes of the sets of free FPGAs that are still connected.  Of
two lists of fragments, longest first, the lexicographically greater one is better, since the largest set that remains
for a wide task matters most.  All functions here are for at most a few dozen members.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import IntEnum


class Links(IntEnum):
    """How the FPGAs of a task have to be linked, from the weakest requirement to the strongest."""

    #: Any free FPGAs of one enclosure.
    ANY = 0
    #: A connected path.
    LINE = 1
    #: A closed cycle; one FPGA, or two that are linked, count as one.
    RING = 2


class Topology(IntEnum):
    """How the FPGAs of an enclosure are linked."""

    LINE = 0
    RING = 1
    #: Each FPGA is linked with all others.
    FULL = 2


#: The sizes of the sets of connected free FPGAs, largest first.
Fragments = tuple[int, ...]


def connected_runs(members: Collection[int], size: int, topology: Topology) -> list[tuple[int, ...]]:
    """Return the maximal connected sets among members of an enclosure of `size`, each in the order of its path.

    Raises ValueError if a member is not in the enclosure.
    """
    there = set(members)
    if there and (min(there) < 0 or max(there) >= size):
        raise ValueError(f"members: expected indices of 0 to {size - 1}, found {sorted(there)}")
    if topology == Topology.FULL or len(there) == size:
        return [tuple(sorted(there))] if there else []
    # Start on a ring after a missing member, on a line at its end.
    begin = next(index for index in range(size) if index not in there) + 1 if topology == Topology.RING else 0
    runs: list[tuple[int, ...]] = []
    run: list[int] = []
    for index in (*((begin + step) % size for step in range(size)), None):
        if index in there:
            run.append(index)
        elif run:
            runs.append(tuple(run))
            run = []
    return runs


def fragments(free: Collection[int], size: int, topology: Topology) -> Fragments:
    """Return the sizes of the connected sets of free members, largest first."""
    return tuple(sorted(map(len, connected_runs(free, size, topology)), reverse=True))


def is_linked(members: Collection[int], size: int, topology: Topology, wish: Links) -> bool:
    """Return whether distinct members are linked as `wish` requires: in a connected path (line) or a cycle (ring).

    One FPGA, or two that are linked, count as a ring.
    """
    if wish == Links.ANY or topology == Topology.FULL or len(members) <= 1:
        return True
    if len(connected_runs(members, size, topology)) != 1:
        return False
    return wish == Links.LINE or len(members) == 2 or (topology == Topology.RING and len(members) == size)


def choose(
    free: Collection[int],
    size: int,
    topology: Topology,
    wish: Links,
    count: int,
    cost: Sequence[float] | None = None,
    admits: Callable[[tuple[int, ...]], bool] | None = None,
) -> tuple[int, ...] | None:
    """Return `count` free members that are linked as `wish` requires and that `admits` allows; None if there are none.

    Of all such sets, one with the smallest sum of `cost` (size,) is chosen; of those with equal costs, the one that
    leaves the best fragments, then the one with the lowest indices.  Members are in the order of their path.  `admits`
    is not called if every set of members is linked as required.  Raises ValueError if a member is not in the enclosure,
    or `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"count: expected 1 or more, found {count}")
    costs = [0.0] * size if cost is None else cost
    if wish == Links.ANY or topology == Topology.FULL:
        return _cheapest(set(free), size, topology, count, costs)
    # If `admits` is None, the filter keeps all paths.
    best: tuple[float, tuple[int, ...], tuple[int, ...]] | None = None
    for path in filter(admits, paths(free, size, topology, wish, count)):
        # Greater fragments are better.  All lists have the same sum, so none is a prefix of another.
        left = fragments(set(free) - set(path), size, topology)
        key = (sum(costs[index] for index in path), tuple(-length for length in left), path)
        best = key if best is None else min(best, key)
    return None if best is None else best[2]


def paths(free: Collection[int], size: int, topology: Topology, wish: Links, count: int) -> Iterator[tuple[int, ...]]:
    """Yield each connected path of `count` free members that is linked as `wish` requires, on a line or a ring."""
    for run in connected_runs(free, size, topology):
        closed = topology == Topology.RING and len(run) == size
        starts = size if closed and count < size else len(run) - count + 1
        for start in range(starts):
            path = tuple(run[(start + step) % len(run)] for step in range(count))
            if is_linked(path, size, topology, wish):
                yield path


def _cheapest(
    free: set[int], size: int, topology: Topology, count: int, cost: Sequence[float]
) -> tuple[int, ...] | None:
    """Return the cheapest members, linked or not; of equal ones those in the shortest runs, starting at one end."""
    if len(free) < count:
        return None
    limit = sorted(cost[index] for index in free)[count - 1]
    taken = {index for index in free if cost[index] < limit}
    runs = sorted(connected_runs(free - taken, size, topology), key=len)
    equal = [index for run in runs for index in run if cost[index] == limit]
    return tuple(sorted(taken.union(equal[: count - len(taken)])))
