"""What a card gains whose slots are loaded once: the best set of functions, found when all is over."""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import numpy as np

from fpga_pool.core.benefit.moves import Load, Move
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.plus import start_ready
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.policy import PolicyState
from fpga_pool.experiments.figures.benefit.runs import benefit_vcpus
from fpga_pool.sim.benefit.trace import Trace


class FixedSet:
    """Loads each slot once, with a function that is given, and starts what can run, the most useful first."""

    name = "fixed"

    def __init__(self, functions: Sequence[int], order: Sequence[int]) -> None:
        self._functions = functions
        self._order = order

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next load, as long as there is one, then the next start."""
        for slot in self._order:
            if view.holds[slot] == EMPTY and not view.port_busy[view.card[slot]]:
                return Load(slot, self._functions[slot])
        return start_ready(view, view.functions)


def best_fixed_vcpus(pool: OnlinePool, jobs: Trace) -> float:
    """Return the mean benefit of the best fixed set on a trace; slots of one kind on one card are alike."""
    return max(benefit_vcpus(pool, jobs, FixedSet(functions, order)) for functions, order in _fixed_sets(pool))


def _fixed_sets(pool: OnlinePool) -> Iterator[tuple[list[int], list[int]]]:
    """Yield functions by slot, and the order in which the slots load: the most useful first."""
    groups: dict[tuple[int, int], list[int]] = {}
    for slot, place in enumerate(zip(pool.slot_card.tolist(), pool.slot_kind.tolist(), strict=True)):
        groups.setdefault(place, []).append(slot)
    choices = [
        combinations_with_replacement(np.flatnonzero(pool.fits[kind]).tolist(), len(slots))
        for (_, kind), slots in groups.items()
    ]
    for chosen in product(*choices):
        functions = [EMPTY] * pool.slots
        for slots, some in zip(groups.values(), chosen, strict=True):
            for slot, function in zip(slots, some, strict=True):
                functions[slot] = function
        yield functions, sorted(range(pool.slots), key=lambda slot: -pool.speedup[functions[slot]])
