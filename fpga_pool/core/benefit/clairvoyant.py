"""A schedule of a whole trace, made by somebody who knows it, as a policy that only carries it out."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.moves import Move, Start
from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.core.policy import PolicyState

#: Moves are made this much early: a job that gives up at its planned start is there until then.
_EARLY_S = 1e-6


@dataclass(frozen=True, slots=True)
class Action:
    """What a slot does from a time on: load a function, or run the job that has waited longest for it."""

    begin_s: float
    move: Move


class Clairvoyant:
    """Makes each move at its time, or as soon as it can be made afterwards; for one run over one trace.

    Where times of the plan were rounded down, a slot may be late.  A start whose job has not come
    by `patience_s` after its time is left out.
    """

    name = "exact"

    def __init__(self, actions: Iterable[Action], patience_s: float) -> None:
        self._patience_s = patience_s
        self._left: dict[int, deque[Action]] = defaultdict(deque)
        for action in sorted(actions, key=lambda action: action.begin_s):
            self._left[action.move.slot].append(action)

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next move that is due and can be made."""
        for left in self._left.values():
            while left and left[0].begin_s <= now_s + _EARLY_S:
                action = left[0]
                if _possible(view, action.move):
                    return left.popleft().move
                gone = isinstance(action.move, Start) and not view.waiting[action.move.function]
                if not (gone and now_s > action.begin_s + self._patience_s):
                    break
                left.popleft()
        return None


def _possible(view: Occupancy, move: Move) -> bool:
    """Say whether a move can be made now."""
    slot, held = move.slot, view.holds[move.slot]
    idle = slot in view.idle[view.kind[slot]][held]
    if isinstance(move, Start):
        return idle and held == move.function and bool(view.waiting[move.function])
    stops = view.job[slot] >= 0 and view.preemptible[held] and view.progress_kept[held]
    return (idle or stops) and not view.port_busy[view.card[slot]]
