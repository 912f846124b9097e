"""`measy_plus`, our gang policy: MEASY with earlier turns for shorter gangs, and moves that never delay the head."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fpga_pool.core.gangs import reservation as dispatch
from fpga_pool.core.gangs.gangs import Gangs, How, Move, TierParams
from fpga_pool.core.gangs.paper import Measy
from fpga_pool.core.gangs.reservation import Reservation, next_behind, next_fill
from fpga_pool.core.gangs.tiers import Tiers
from fpga_pool.core.parameters import parameter
from fpga_pool.core.types import Floats, Ints, floats

#: A usage below that of any process: gangs with this limit are placed only behind an idle foreground.
_IDLE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusParams(TierParams):
    """Parameters of `measy_plus`; the defaults of the rates are means of the measurements in section 2.1."""

    patience: float = parameter(
        4.0,
        "Multiple of its estimated run time after which a gang's turn comes, sooner for wider gangs. The "
        "queue is ordered by turns, and nothing is reserved for the head before its turn.",
        min=0.0,
    )
    least_rate: float = parameter(
        0.2, "Minimum expected progress rate for a gang to be placed in the background.", min=0.0, max=1.0
    )
    least_rate_from_s: float = parameter(
        3600.0,
        "Gangs with an estimate of at most this many seconds are placed in the background at any rate, "
        "since a little progress may suffice.",
        min=0.0,
    )
    used_single: float = parameter(
        0.86, "Expected share of the idle cycles that a gang with one process uses.", min=0.0, max=1.0
    )
    used_several: float = parameter(0.482, "Expected share of the idle cycles that wider gangs use.", min=0.0, max=1.0)

    last_runs: int = parameter(
        0,
        "Number of recent run times of the same user whose mean, limited by the estimate, is the expected "
        "run time by which gangs are sorted. 0: the estimate. Reservations always use estimates.",
        min=0,
    )
    trial_s: float = parameter(
        0.0,
        "Seconds for which a gang that starts in the background has the higher priority there (a trial), "
        "if the foreground gangs can yield. 0: no trials.",
        min=0.0,
    )
    trial_share: float = parameter(
        0.05, "Maximum share of its estimate for which a gang yields to trials.", min=0.0, max=1.0
    )


class MeasyPlus(Measy):
    """MEASY with four changes.

    Once the turn of a gang has come, no later arrival is queued ahead of it, and as the head it has a reservation.  As
    long as run times keep to the estimates, and apart from the loss of shared foregrounds, no head starts later than
    its first reservation says, so no gang starves, however wide.
    """

    name = "measy_plus"
    Params: ClassVar[type[PlusParams]] = PlusParams
    _params: PlusParams

    def __init__(self, params: PlusParams | None = None) -> None:
        super().__init__(params)
        #: The last argument of `_highest_usage` and its result, which is the same for all decisions on these gangs.
        self._highest: tuple[Gangs, Floats] | None = None

    @property
    def patience(self) -> float:
        """Return the multiple of its estimate that a gang waits for its turn."""
        return self._params.patience

    @property
    def last_runs(self) -> int:
        """Return the number of past run times of a user that predict the next one."""
        return self._params.last_runs

    @property
    def trial_s(self) -> float:
        """Return the duration of a trial in seconds."""
        return self._params.trial_s

    def _reserve(self, view: Tiers, head: int, now_s: float) -> Reservation:
        """Return the reservation of the head; before its turn it has none, and any gang that fits may start first."""
        if now_s < view.turn_s[head]:
            return Reservation(np.inf, view.idle)
        return super()._reserve(view, head, now_s)

    def _backfill(self, view: Tiers, now_s: float) -> Iterator[Move]:
        """Deploy gangs that do not delay the head (step 2), shortest first; migrations count with their duration."""
        order, head = view.shortest, int(view.queue.rows[0])
        reservation = self._reserve(view, head, now_s)
        at = -1
        while view.idle and (at := next_fill(view, order, at + 1, view.gangs.estimate_s, now_s, reservation)) >= 0:
            gang = int(order.rows[at])
            if gang == head or (move := self._deploy(view, gang)) is None:
                continue
            longest_s = view.estimate_s[gang] + (view.migration_s if move.how is How.MIGRATE else 0.0)
            stays = now_s + longest_s > reservation.begin_s
            if stays and view.width[gang] > reservation.extra:
                continue
            yield move
            at -= 1
            if stays:
                reservation = reservation._replace(extra=reservation.extra - view.width[gang])

    def _start_behind(self, view: Tiers, now_s: float) -> Iterator[Move]:
        """Start gangs in the background (step 3), but only where progress is expected."""
        highest_usage = self._highest_usage(view.gangs)
        at = 0
        while (at := next_behind(view, view.unplaced, at, highest_usage, self._params.usage_threshold)) >= 0:
            gang = int(view.unplaced.rows[at])
            processors = dispatch.behind(view, gang, float(highest_usage[gang]))
            if processors is None:
                return
            how = How.TRY if self._may_try(view, processors, now_s) else How.START_BEHIND
            yield Move(gang, how, processors)

    def _may_try(self, view: Tiers, processors: Ints, now_s: float) -> bool:
        """Return whether there are gangs in the foreground of these processors, and all may yield for a trial.

        A gang that now ends before the head starts may not yield if it would then end after the start.
        """
        others = view.in_front_of(processors) if view.trial_s else set()
        if not others:
            return False
        begin_s = self._reserve(view, int(view.queue.rows[0]), now_s).begin_s

        def may_give_way(other: int) -> bool:
            longest_s = self._params.trial_share * view.estimate_s[other]
            end_s = max(view.end_s(other), now_s)  # a gang past its estimated end may end at any moment
            delays_head = end_s <= begin_s < end_s + view.trial_s
            return view.gave_way_s.get(other, 0.0) + view.trial_s <= longest_s and not delays_head

        return all(map(may_give_way, others))

    def _highest_usage(self, gangs: Gangs) -> Floats:
        """Return (G,) the foreground usage at or above which a gang is not placed in the background.

        Behind usage f, a process of usage u is expected to progress at the rate p (1 - f) / u.
        """
        known = self._highest  # read once: other shards, and dry runs, call this in other threads
        if known is None or known[0] is not gangs:
            params = self._params
            used = np.where(gangs.width == 1, params.used_single, params.used_several)
            enough = 1.0 - params.least_rate * gangs.busiest / np.maximum(used, 1e-300)
            enough = np.where(used <= params.least_rate, _IDLE, np.minimum(params.usage_threshold, enough))
            short = gangs.estimate_s <= params.least_rate_from_s
            known = self._highest = gangs, floats(np.where(short, params.usage_threshold, enough))
        return known[1]
