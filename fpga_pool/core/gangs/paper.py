"""The paper's policies: EASY on one tier; KEASY, REASY and MEASY on two (Algorithms 1 to 3)."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from fpga_pool.core.gangs import reservation as dispatch
from fpga_pool.core.gangs.gangs import How, Move, ReservationParams, TierParams
from fpga_pool.core.gangs.reservation import Reservation, anywhere, next_fill, next_narrow, where_it_sits
from fpga_pool.core.gangs.tiers import BEHIND, Tiers
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Ints


class Easy:
    """First come, first served, with a reservation for the head and backfilling ahead of it: steps 1 and 2."""

    name = "easy"
    Params: ClassVar[type[ReservationParams]] = ReservationParams

    def __init__(self, params: ReservationParams | None = None) -> None:
        self._params = params or self.Params()

    def prepare(self) -> None:
        """Compile the loops of `scans`, or load them from the cache of an earlier run."""
        from fpga_pool.core.gangs import scans  # noqa: F401

    @property
    def patience(self) -> float:
        """0: gangs are queued in order of arrival."""
        return 0.0

    @property
    def last_runs(self) -> int:
        """0: run times are not predicted."""
        return 0

    @property
    def trial_s(self) -> float:
        """0: there are no trials."""
        return 0.0

    def decide(self, view: Tiers, state: PolicyState, now_s: float, rng: np.random.Generator) -> Iterator[Move]:
        """Yield moves one by one; each is applied to the view before the next one is requested."""
        if view.news_in_front:
            yield from self._serve(view)
            if view.queue.count > 1 and view.idle:
                yield from self._backfill(view, now_s)

    def _serve(self, view: Tiers) -> Iterator[Move]:
        """Deploy gangs from the head of the queue as long as possible (step 1)."""
        while view.queue.count and view.width[head := int(view.queue.rows[0])] <= view.idle:
            move = self._deploy(view, head)
            if move is None:
                return
            yield move

    def _backfill(self, view: Tiers, now_s: float) -> Iterator[Move]:
        """Deploy gangs that do not delay the head (step 2)."""
        queue, run_s, estimate_s = view.queue, view.gangs.estimate_s, view.estimate_s
        reservation = self._reserve(view, int(queue.rows[0]), now_s)
        at = 0
        while view.idle and (at := next_fill(view, queue, at + 1, run_s, now_s, reservation)) > 0:
            gang = int(queue.rows[at])
            stays = now_s + estimate_s[gang] > reservation.begin_s
            move = self._deploy(view, gang, reservation.spared if stays else None)
            if move is None:
                continue
            yield move
            at -= 1
            if stays:
                reservation = reservation._replace(extra=reservation.extra - view.width[gang])

    def _reserve(self, view: Tiers, head: int, now_s: float) -> Reservation:
        return anywhere(view, head, now_s, self._params.extra_ends)

    def _deploy(self, view: Tiers, gang: int, spared: Ints | None = None) -> Move | None:
        """Return the move of a gang to the foreground, avoiding the `spared` processors; None if there is none."""
        processors = dispatch.in_front(view, gang, spared)
        return None if processors is None else Move(gang, How.START, processors)


class _TwoTiers(Easy):
    """Steps 1 to 3; gangs in the background may be deployed to the foreground, too."""

    Params: ClassVar[type[TierParams]] = TierParams
    _params: TierParams

    def decide(self, view: Tiers, state: PolicyState, now_s: float, rng: np.random.Generator) -> Iterator[Move]:
        """Yield moves one by one; each is applied to the view before the next one is requested."""
        yield from super().decide(view, state, now_s, rng)
        if view.unplaced.count and view.processes_behind < view.processors:
            yield from self._start_behind(view, now_s)

    def _start_behind(self, view: Tiers, now_s: float) -> Iterator[Move]:
        """Start the shortest gangs of the queue in the background (step 3)."""
        usage_threshold = self._params.usage_threshold
        at = 0
        while (at := next_narrow(view, view.unplaced, at, usage_threshold)) >= 0:
            gang = int(view.unplaced.rows[at])
            processors = dispatch.behind(view, gang, usage_threshold)
            if processors is None:
                return
            yield Move(gang, How.START_BEHIND, processors)

    def _deploy(self, view: Tiers, gang: int, spared: Ints | None = None) -> Move | None:
        if view.tier[gang] != BEHIND:
            return super()._deploy(view, gang, spared)
        if dispatch.can_swap(view, gang) and (spared is None or not np.isin(view.placed[gang], spared).any()):
            return Move(gang, How.SWAP, view.placed[gang])
        return self._elsewhere(view, gang, spared)

    def _elsewhere(self, view: Tiers, gang: int, spared: Ints | None) -> Move | None:
        """Return the move of a gang that cannot swap to the foreground of other processors; None if there is none."""
        raise NotImplementedError


class Keasy(_TwoTiers):
    """Algorithm 1: a gang that moves to other processors is killed and restarted."""

    name = "keasy"

    def _elsewhere(self, view: Tiers, gang: int, spared: Ints | None) -> Move | None:
        processors = dispatch.in_front(view, gang, spared)
        return None if processors is None else Move(gang, How.RESTART, processors)


class Measy(_TwoTiers):
    """Section 2.3.2: a gang that moves to other processors migrates."""

    name = "measy"

    def _elsewhere(self, view: Tiers, gang: int, spared: Ints | None) -> Move | None:
        processors = dispatch.in_front(view, gang, spared)
        return None if processors is None else Move(gang, How.MIGRATE, processors)


class Reasy(_TwoTiers):
    """Algorithm 3: a gang in the background waits for the foreground of its own processors."""

    name = "reasy"

    def _reserve(self, view: Tiers, head: int, now_s: float) -> Reservation:
        if view.tier[head] == BEHIND:
            return where_it_sits(view, head, now_s)
        return super()._reserve(view, head, now_s)

    def _elsewhere(self, view: Tiers, gang: int, spared: Ints | None) -> Move | None:
        return None
