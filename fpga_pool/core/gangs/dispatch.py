"""Which processors a gang gets: the function Dispatch of Algorithm 2."""

import numpy as np

from fpga_pool.core.gangs.tiers import Tiers
from fpga_pool.core.types import Ints

_NONE: Ints = np.empty(0, np.int64)


def in_front(view: Tiers, gang: int, spared: Ints | None = None) -> Ints | None:
    """Return idle processors for the foreground, none of `spared`; None where there are too few.

    The least used come first, so that the gang's busiest process meets the least busy background.  Of equals the first.
    A gang that leaves the background of some does not count there any more.
    """
    width = view.width[gang]
    found: Ints = view.scans.idle_in_front(
        view.front, view.behind, view.behind_usage, gang, width, _NONE if spared is None else spared
    )
    return found if len(found) == width else None


def behind(view: Tiers, gang: int, usage_threshold: float) -> Ints | None:
    """Return processors for the background, the least used in the foreground first; None where there are too few."""
    width = view.width[gang]
    found: Ints = view.scans.idle_behind(view.behind, view.front_usage, usage_threshold, width)
    return found if len(found) == width else None


def can_swap(view: Tiers, gang: int) -> bool:
    """Say whether the foreground of all processors is idle behind which the gang runs."""
    return bool(view.scans.all_idle(view.front, view.placed[gang]))
