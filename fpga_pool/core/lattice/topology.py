"""Choice of FPGAs of an enclosure that are linked as a task asks, so that the others stay connected.

Members are the indices of FPGAs within one enclosure: on a line each is linked to the next, on a ring the last one to
the first as well.  What is left free after a choice is its fragments, the numbers of FPGAs that are still connected;
of two lists of fragments, longest first, the better one is the greater in lexicographic order: what can be kept whole
for a wide task matters most.  Everything here is a pure function of a few dozen members at most.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from fpga_pool.core.lattice.tasks import Links, Topology

#: The numbers of free FPGAs that are connected with each other, the largest first.
Fragments = tuple[int, ...]


def connected_runs(members: Collection[int], size: int, topology: Topology) -> list[tuple[int, ...]]:
    """Return the largest connected sets among members of an enclosure of `size`, each in the order of its path.

    Raises
    ------
    ValueError
        If a member is not in the enclosure.

    """
    there = set(members)
    if there and (min(there) < 0 or max(there) >= size):
        raise ValueError(f"members: expected indices of 0 to {size - 1}, found {sorted(there)}")
    if topology == Topology.FULL or len(there) == size:
        return [tuple(sorted(there))] if there else []
    # A ring is followed from behind a member that is missing, a line from its end.
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
    """Return how many of the free members are connected with each other, the largest number first."""
    return tuple(sorted(map(len, connected_runs(free, size, topology)), reverse=True))


def is_linked(members: Collection[int], size: int, topology: Topology, wish: Links) -> bool:
    """Return whether different members are linked as wished: a line is a connected path, a ring closes a cycle.

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
    """Return `count` free members that are linked as wished, and that `admits` allows; None if there are none.

    Of all such sets it is one of those with the least sum of `cost` (size,); of these, with equal costs, the one that
    leaves the best fragments; of these the one with the lowest indices.  Members come in the order of their path.
    `admits` is not asked where members are linked as wished whichever they are.

    Raises
    ------
    ValueError
        If a member is not in the enclosure, or `count` is below 1.

    """
    if count < 1:
        raise ValueError(f"count: expected 1 or more, found {count}")
    costs = [0.0] * size if cost is None else cost
    if wish == Links.ANY or topology == Topology.FULL:
        return _cheapest(set(free), size, topology, count, costs)
    # Without `admits` the filter keeps all.
    best: tuple[float, tuple[int, ...], tuple[int, ...]] | None = None
    for path in filter(admits, paths(free, size, topology, wish, count)):
        # The better fragments are the greater ones; their sum is the same for all, so that none is a beginning of
        # another one.
        left = fragments(set(free) - set(path), size, topology)
        key = (sum(costs[index] for index in path), tuple(-length for length in left), path)
        best = key if best is None else min(best, key)
    return None if best is None else best[2]


def paths(free: Collection[int], size: int, topology: Topology, wish: Links, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the free members on each connected path of `count` that is linked as wished, on a line or a ring."""
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
    """Return the cheapest members, linked or not; among equals from the shortest runs, and there from one end."""
    if len(free) < count:
        return None
    limit = sorted(cost[index] for index in free)[count - 1]
    taken = {index for index in free if cost[index] < limit}
    runs = sorted(connected_runs(free - taken, size, topology), key=len)
    equal = [index for run in runs for index in run if cost[index] == limit]
    return tuple(sorted(taken.union(equal[: count - len(taken)])))
