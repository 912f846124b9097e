"""Run times predicted from what the same user's gangs took before.

Tsafrir, Etsion, Feitelson: *Backfilling Using System-Generated Predictions Rather than User Runtime Estimates*
(IEEE TPDS 18(6), 2007), section 3: the mean of the last two run times of the user, never above the estimate; a gang
that outruns its prediction gets a longer one.
"""

from collections import deque
from collections.abc import Collection

from fpga_pool.core.types import Ints

#: Of nobody who is known.
UNKNOWN = -1
#: By how much a prediction that is outrun grows, one after the other (section 3, "prediction correction").
_MINUTE_S, _HOUR_S = 60.0, 3600.0
STEPS_S = tuple(
    unit * count for unit, counts in ((_MINUTE_S, (1, 5, 15, 30)), (_HOUR_S, (1, 2, 5, 10, 20, 50, 100)))
    for count in counts
)  # fmt: skip


class History:
    """The `last` run times of each user; `user` is (G,) who sent each gang, `UNKNOWN` where nobody knows."""

    def __init__(self, user: Ints, last: int) -> None:
        self._user: list[int] = user.tolist()
        self._last = last
        self._runs_s: dict[int, deque[float]] = {}

    def ran(self, gang: int, run_s: float) -> None:
        """Take how long a gang has run, in seconds on processors of its own."""
        user = self._user[gang]
        if user != UNKNOWN:
            self._runs_s.setdefault(user, deque(maxlen=self._last)).append(run_s)

    def predict(self, gang: int, estimate_s: float) -> float:
        """Return how long a gang is expected to run: the estimate where too little is known of its user."""
        return predicted(self._runs_s.get(self._user[gang], ()), self._last, estimate_s)


def predicted(runs_s: Collection[float], last: int, estimate_s: float) -> float:
    """Return how long a gang is expected to run whose user's `last` gangs ran so long, the oldest first."""
    if not runs_s or len(runs_s) < last:
        return estimate_s
    return min(estimate_s, sum(runs_s) / len(runs_s))


def corrected(predicted_s: float, done_s: float, estimate_s: float) -> float:
    """Return the prediction for a gang that has run for `done_s` seconds: that of its arrival, or longer once outrun.

    It is longer by the least of `STEPS_S` that leaves something to run, to the estimate at most.
    """
    if done_s < predicted_s:
        return predicted_s
    for step_s in STEPS_S:
        if predicted_s + step_s > done_s:
            return min(estimate_s, predicted_s + step_s)
    return estimate_s
