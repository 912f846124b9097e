"""What completes last if an instance takes a slot now: it and the instances to come, which need slots, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.makespan.reserving import costs, place_prices, unavoidable_s
from fpga_pool.core.types import Floats
from fpga_pool.model.catalogue import Catalogue

#: A board, and a kind of its slots.
Place = tuple[str, str]


@dataclass(frozen=True)
class Reservations:
    """Prices of slots for an instance of one function."""

    #: (C,) by board and kind: what one slot is worth to instances to come; 1 is the cost of completing last.
    prices: Floats
    #: The longest time of any function on its fastest board, in seconds.
    longest_s: float

    def latenesses(self, completions_s: Floats, prices: Floats, evictions: Floats) -> Floats:
        """Return how much later all instances complete; inf stays inf.

        It is the cost of a completion time, and what the slot is worth to instances to come.  What is evicted counts as
        if it completed last.  All in hundredths: smaller differences are left to other terms.
        """
        latenesses: Floats = np.round(costs(completions_s, self.longest_s) + prices + evictions, 2)
        return latenesses


def reservations(
    catalogue: Catalogue,
    places: Sequence[Place],
    free: Floats,
    demand: Mapping[str, float],
    run_times_s: Mapping[str, float],
) -> Reservations:
    """Return them for a pool with so many `free` (C,) slots of each place.

    Further instances are expected in the proportions of `demand`, the slots that are held for each function, plus one
    for each function of the catalogue.  One whose run time (on the fastest board) is not known is expected to run as
    long as the others on average; at least one has to be known.
    """
    usual_s = float(np.mean(list(run_times_s.values())))
    times_s = np.full((len(catalogue.functions), len(places)), np.inf)
    for row, (name, function) in enumerate(catalogue.functions.items()):
        for column, (board, kind) in enumerate(places):
            if catalogue.fits(name, board, kind):
                run_s = run_times_s.get(name, usual_s) * function.slowdown_on(board)
                times_s[row, column] = catalogue.boards[board].load_s(kind) + run_s
    mix = np.array([1.0 + demand.get(name, 0.0) for name in catalogue.functions])
    longest_s = unavoidable_s(times_s) or usual_s
    return Reservations(place_prices(costs(times_s, longest_s), mix, free), longest_s)
