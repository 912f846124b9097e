"""Gangs and policy parameters: the input of every gang policy, and run times predicted from each user's history.

Prediction follows Tsafrir, Etsion, Feitelson: *Backfilling Using System-Generated Predictions Rather Than User Runtime
Estimates* (IEEE TPDS 18(6), 2007), section 3: the mean of the last two run times of the user, never above the
estimate.  A gang that outruns its prediction gets a longer one.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.types import Floats, Ints, freeze_arrays


class How(Enum):
    """How a gang gets to its new processors."""

    #: From the queue to the foreground, or to the background.
    START = "start"
    START_BEHIND = "start behind"
    #: From the queue to the background, where it has the higher priority for a trial (`Tiers.trial_s`).
    TRY = "try"
    #: From the background to the foreground: by a swap of priorities on its own processors, by a migration that keeps
    #: its progress, or by a restart that loses it.
    SWAP = "swap"
    MIGRATE = "migrate"
    RESTART = "restart"


class Move(NamedTuple):
    """One decision: the gang, how it is moved, and the processor of each of its processes."""

    gang: int
    how: How
    processors: Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Gangs:
    """G gangs in order of arrival; their indices break all ties."""

    #: (G,) number of processes.
    width: Ints
    #: (G,) requested run time: a limit for decisions only; gangs that exceed it are not killed.
    estimate_s: Floats
    #: CPU usage of a process on a dedicated processor: (G,) one value for all processes of a gang, or (sum of
    #: widths,) one per process, gang after gang and in descending order within each gang.
    usage: Floats
    #: (G,) user of each gang, -1 = unknown; None = all unknown.
    user: Ints | None = None

    def __post_init__(self) -> None:
        freeze_arrays(self, real=("estimate_s", "usage"), whole=("width",) if self.user is None else ("width", "user"))
        count = len(self.width)
        if (self.width < 1).any():
            raise ValueError("width: expected 1 or more")
        if self.estimate_s.shape != (count,) or not (np.isfinite(self.estimate_s) & (self.estimate_s > 0)).all():
            raise ValueError(f"estimate_s: expected {count} finite numbers above 0")
        if self.user is not None and self.user.shape != (count,):
            raise ValueError(f"user: expected {count} numbers, found {self.user.shape}")
        if self.usage.shape not in ((count,), (int(self.width.sum()),)):
            raise ValueError(f"usage: expected {count} or {self.width.sum()} numbers, found {self.usage.shape}")
        if not ((self.usage > 0) & (self.usage <= 1)).all():
            raise ValueError("usage: expected shares of a processor, above 0 and 1 at most")
        first = np.cumsum(self.width)[:-1]
        if self.per_process and (np.delete(np.diff(self.usage), first - 1) > 0).any():
            raise ValueError("usage: expected the processes of a gang in descending order")

    @cached_property
    def busiest(self) -> Floats:
        """(G,) usage of the busiest process of each gang."""
        return self.usage[np.cumsum(self.width) - self.width] if self.per_process else self.usage

    @property
    def per_process(self) -> bool:
        """Whether each process has its own usage."""
        return len(self.usage) != len(self.width)


#: Which of the gangs that end at the shadow time contribute extra processors.
NEEDED, ALL = "needed", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationParams(Parameters):
    """Parameters of the reservation for the head; policies for one tier have no others."""

    #: Algorithm 1, line 21: the loop ends with the first gang that frees enough.
    extra_ends: str = parameter(
        NEEDED,
        "Which of the gangs that end when the head can start are counted for the extra processors: those "
        "needed by the head, or all.",
        choices=(NEEDED, ALL),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierParams(ReservationParams):
    """Parameters of policies for two tiers."""

    #: Section 2.1, observation 3.
    usage_threshold: float = parameter(
        0.96, "Foreground usage above which no background process is placed.", min=0.0, max=1.0
    )


# ---- Predicted run times

#: Number of an unknown user.
UNKNOWN = -1
#: Extensions of a prediction that a gang has outrun, in the order of use (section 3, "prediction correction").
_MINUTE_S, _HOUR_S = 60.0, 3600.0
STEPS_S = tuple(
    unit * count for unit, counts in ((_MINUTE_S, (1, 5, 15, 30)), (_HOUR_S, (1, 2, 5, 10, 20, 50, 100)))
    for count in counts
)  # fmt: skip


class History:
    """The `last` run times of each user; `user` is the (G,) user of each gang, or `UNKNOWN`."""

    def __init__(self, user: Ints, last: int) -> None:
        self._user: list[int] = user.tolist()
        self._last = last
        self._runs_s: dict[int, deque[float]] = {}

    def ran(self, gang: int, run_s: float) -> None:
        """Record the run time of a gang, in seconds on dedicated processors."""
        user = self._user[gang]
        if user != UNKNOWN:
            self._runs_s.setdefault(user, deque(maxlen=self._last)).append(run_s)

    def predict(self, gang: int, estimate_s: float) -> float:
        """Return the expected run time of a gang: the estimate if too few runs of its user are known."""
        return predicted(self._runs_s.get(self._user[gang], ()), self._last, estimate_s)


def predicted(runs_s: Collection[float], last: int, estimate_s: float) -> float:
    """Return the expected run time of a gang from the run times of its user's `last` gangs, the oldest first."""
    if not runs_s or len(runs_s) < last:
        return estimate_s
    return min(estimate_s, sum(runs_s) / len(runs_s))


def corrected(predicted_s: float, done_s: float, estimate_s: float) -> float:
    """Return the prediction for a gang that has run for `done_s` seconds, extended if the gang has outrun it.

    The extension is the smallest of `STEPS_S` that leaves some time to run; the result is at most the estimate.
    """
    if done_s < predicted_s:
        return predicted_s
    for step_s in STEPS_S:
        if predicted_s + step_s > done_s:
            return min(estimate_s, predicted_s + step_s)
    return estimate_s
