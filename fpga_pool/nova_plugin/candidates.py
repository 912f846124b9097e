"""What Nova's allocation candidates say of the pool's slots."""

from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.model.flavor import RESOURCE_CLASS

Candidate = Mapping[str, Any]
#: Providers that a candidate allocates slots of, with their numbers.
Slots = Sequence[tuple[str, int]]
#: Rows of providers, with how many slots of each.
Needs = Sequence[tuple[int, int]]

#: Row of a provider that is none of the pool's: the last of a list, which is kept for it.
UNKNOWN = -1


def slots_of(candidate: Candidate) -> Slots:
    """Return the providers that a candidate allocates slots of, with their numbers."""
    return [
        (uuid, given["resources"][RESOURCE_CLASS])
        for uuid, given in candidate["allocations"].items()
        if RESOURCE_CLASS in given["resources"]
    ]


def only_rows(candidates: Sequence[Candidate], rows: Mapping[str, int], count: int) -> list[int]:
    """Return for each candidate the row of the provider that gives all of `count` slots; UNKNOWN if there is no row.

    Empty if one of the candidates has its slots otherwise.  Nearly all of Nova's are read here, so it is one loop.
    """
    found = []
    for candidate in candidates:
        only = None
        for uuid, given in candidate["allocations"].items():
            resources = given["resources"]
            if RESOURCE_CLASS in resources:
                if only is not None or resources[RESOURCE_CLASS] != count:
                    return []
                only = uuid
        if only is None:
            return []
        found.append(rows.get(only, UNKNOWN))
    return found
