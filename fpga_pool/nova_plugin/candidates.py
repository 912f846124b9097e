"""What Nova's allocation candidates say of the pool's slots."""

from collections.abc import Mapping, Sequence
from typing import Any

from fpga_pool.model.flavor import RESOURCE_CLASS

Candidate = Mapping[str, Any]
#: Providers that a candidate allocates slots of, with their numbers.
Slots = Sequence[tuple[str, int]]
#: Rows of providers, with how many slots of each.
Needs = Sequence[tuple[int, int]]


def slots_of(candidate: Candidate) -> Slots:
    """Return the providers that a candidate allocates slots of, with their numbers."""
    return [
        (uuid, given["resources"][RESOURCE_CLASS])
        for uuid, given in candidate["allocations"].items()
        if RESOURCE_CLASS in given["resources"]
    ]
