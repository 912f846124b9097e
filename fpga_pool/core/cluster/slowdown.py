"""A model, learned from runs, of how subtasks that share a unit slow each other down."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

#: Types of the other subtasks on a unit, sorted.
Companions = tuple[Hashable, ...]

# The model uses names of types, never their demands, so it does not depend on the cause of the interference.  The
# logarithm of the rate of a subtask of type i beside a set C of companions, as a share of its rate alone, is
#
#     log rate(i | C) = sum over j in C of (b + s_i + p_j + q_ij) + d_iC,
#
# with a common term, the sensitivity of i, the pressure of j, a term for their pair, and for an observed set the part
# that the sum does not explain.  A run that took `actual_s`, of which a share w_C beside C, is one observation
#
#     log(actual_s / estimated_s) = e_i - log(sum over C of w_C rate(i | C)) + noise,
#
# where e_i is the error of the estimate.  All terms are normal with the prior deviations below; each observation
# updates their means and variances (an extended Kalman filter with a diagonal covariance).  Variances have a lower
# limit, so that the model follows changes.

#: Prior mean of the common term: a companion costs 15 %.
_PRIOR_MEAN = -0.15
#: Prior standard deviations of the terms, by the first part of their key.  Estimates may be wrong by a factor of three:
#: with a smaller deviation the model mistakes their errors for interference.
_DEVIATIONS = {"error": 1.0, "common": 0.3, "sensitivity": 0.2, "pressure": 0.2, "pair": 0.25, "set": 0.25}
_VARIANCES = {name: deviation**2 for name, deviation in _DEVIATIONS.items()}
#: Variance of the noise of one observation: runs of one type differ by about 20 %.
_NOISE = 0.2**2
#: Variances never fall below this share of the prior's.
_LEAST_VARIANCE = 0.01
#: Maximum number of companions in a set with a separate term; there are too many larger sets.
_LARGEST_SET = 4
#: Observations are clipped to this factor: a fault is not interference.
_LARGEST_RATIO = 50.0
_LEAST_RATE = 0.01
#: Maximum cost of companions, as a multiple of the time alone, so that wrong reports of a host do not make others
#: unusable.
MOST_COST = 3.0


class SlowdownModel:
    """Model of the rates of types of subtasks beside each other, on one class of units."""

    def __init__(self) -> None:
        #: Mean and variance of each term that an observation has changed.
        self._terms: dict[tuple[Hashable, ...], tuple[float, float]] = {}
        self._rates: dict[tuple[Hashable, Companions], float] = {}

    def rate(self, type_: Hashable, companions: Companions) -> float:
        """Return the rate of a subtask beside its companions (sorted), as a share in (0, 1] of its rate alone."""
        found = self._rates.get((type_, companions))
        if found is None:
            found = self._rates[type_, companions] = min(exp(self._log_rate(type_, companions)), 1.0)
        return found

    def cost(self, type_: Hashable, companions: Companions) -> float:
        """Return how much longer a subtask takes beside its companions (sorted), as a multiple of its time alone."""
        return min(1 / self.rate(type_, companions) - 1, MOST_COST) if companions else 0.0

    def costs(self) -> Mapping[tuple[Hashable, Hashable], float]:
        """Return the cost to each observed type of each observed type as its companion, by (type, companion)."""
        types = [key[1] for key in self._terms if key[0] == "error"]
        return {(type_, other): self.cost(type_, (other,)) for type_ in types for other in types}

    def total_rate(self, types: Sequence[Hashable]) -> float:
        """Return the sum of the rates of subtasks that run concurrently; `types` are sorted."""
        return sum(self.rate(type_, (*types[:i], *types[i + 1 :])) for i, type_ in enumerate(types))

    def observe(
        self,
        type_: Hashable,
        estimated_s: float,
        actual_s: float,
        beside_s: Mapping[Companions, float],
        estimate: Hashable = None,
    ) -> None:
        """Learn from a completed run; `beside_s` maps companions (sorted) to the seconds that it ran beside them.

        All runs of the type with the same `estimate` share one error of the estimate.
        """
        total_s = sum(beside_s.values())
        if not (estimated_s > 0 and actual_s > 0 and total_s > 0):
            return
        parts = {beside: seconds / total_s * exp(self._log_rate(type_, beside)) for beside, seconds in beside_s.items()}
        rate = sum(parts.values())
        ratio = min(max(actual_s / estimated_s, 1 / _LARGEST_RATIO), _LARGEST_RATIO)
        error = "error", type_, estimate
        gradient: dict[tuple[Hashable, ...], float] = {error: 1.0}
        for beside, part in parts.items():
            for key in _keys(type_, beside):
                gradient[key] = gradient.get(key, 0.0) - part / rate
        surprise = log(ratio) - self._term(error)[0] + log(rate)
        spread = {key: self._term(key)[1] * slope for key, slope in gradient.items()}
        variance = _NOISE + sum(spread[key] * slope for key, slope in gradient.items())
        for key, slope in gradient.items():
            mean, own = self._term(key)
            gain = spread[key] / variance
            least = _LEAST_VARIANCE * _VARIANCES[str(key[0])]
            self._terms[key] = mean + gain * surprise, max(own * (1 - gain * slope), least)
        self._rates.clear()

    def _log_rate(self, type_: Hashable, companions: Companions) -> float:
        """Return the logarithm of the rate without an upper limit, so that noise does not bias the learning."""
        return max(sum(self._term(key)[0] for key in _keys(type_, companions)), log(_LEAST_RATE))

    def _term(self, key: tuple[Hashable, ...]) -> tuple[float, float]:
        found = self._terms.get(key)
        if found is None:
            return (_PRIOR_MEAN if key[0] == "common" else 0.0), _VARIANCES[str(key[0])]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A completed run on a unit, which may compute several at once, with its estimated and actual duration."""

    unit: str
    type: str
    estimated_s: float
    actual_s: float
    end_s: float


def learned_from(runs: Sequence[Run]) -> SlowdownModel | None:
    """Return the model learned from runs; None if no two runs on one unit overlapped in time.

    Runs on a unit that have not ended yet are unknown, and their interference is ignored.
    """
    model, known = SlowdownModel(), False
    of_unit: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        of_unit[run.unit].append(run)
    for run in sorted(runs, key=lambda run: run.end_s):
        beside_s = _beside(run, of_unit[run.unit])
        known = known or any(beside_s)
        model.observe(run.type, run.estimated_s, run.actual_s, beside_s)
    return model if known else None


def _beside(run: Run, others: Sequence[Run]) -> Mapping[Companions, float]:
    """Return the seconds that a run spent beside each set of companions."""
    begin_s = run.end_s - run.actual_s
    during = [
        (max(other.end_s - other.actual_s, begin_s), min(other.end_s, run.end_s), other.type)
        for other in others
        if other is not run and other.end_s > begin_s and other.end_s - other.actual_s < run.end_s
    ]
    times = sorted({begin_s, run.end_s, *(time for first, last, _ in during for time in (first, last))})
    found: defaultdict[Companions, float] = defaultdict(float)
    for first, last in pairwise(times):
        found[tuple(sorted(type_ for start, end, type_ in during if start <= first and last <= end))] += last - first
    return found


def _keys(type_: Hashable, companions: Companions) -> list[tuple[Hashable, ...]]:
    """Return the terms whose sum is the logarithm of a rate; a term may occur several times."""
    keys: list[tuple[Hashable, ...]] = []
    for other in companions:
        keys += [("common",), ("sensitivity", type_), ("pressure", other), ("pair", type_, other)]
    if 1 < len(companions) <= _LARGEST_SET:
        keys.append(("set", type_, companions))
    return keys
