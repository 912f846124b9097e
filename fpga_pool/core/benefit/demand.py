"""Demand on a pool, estimated from observations: arrivals, work per job, speedups.

A tenant whose workload changes loses its benefit (section IV.C): speedups are learned per function and tenant, and what
counts of a function is what the jobs gain that come.
"""

import math
from collections.abc import Sequence

#: Seconds after which an arrival counts for 1/e: a mix that changes every half minute is followed, noise is not.
MEMORY_S = 20.0
#: Jobs after which one observed run counts for 1/e.
MEMORY_JOBS = 20.0
#: Arrivals that the mean of all functions counts for beside a function's own: at light load few of each come within the
#: memory, and those are mostly noise.
PRIOR_ARRIVALS = 1.0
#: Pairs of function and tenant that are remembered; those whose jobs ran least lately are forgotten.
TENANTS = 10_000


class Demand:
    """Exponential averages per function; a service that starts derives them again from the newest jobs."""

    def __init__(self, speedup: Sequence[float], memory_s: float = MEMORY_S, memory_jobs: float = MEMORY_JOBS) -> None:
        self._memory_s, self._weight = memory_s, 1.0 / memory_jobs
        #: vCPU equivalents of a job that comes, as observed; the catalogue's figure until then (section IV.C).
        self.speedup = list(speedup)
        self._catalogue = tuple(speedup)
        self._learned: dict[tuple[int, str], float] = {}
        #: Seconds of slot time of one job; 0 = none seen.
        self.work_s = [0.0] * len(self.speedup)
        #: Seconds that a job waits at most; 0 = none seen.
        self.patience_s = [0.0] * len(self.speedup)
        self._sum = [0.0] * len(self.speedup)
        self._at_s = [0.0] * len(self.speedup)
        self._since_s = math.inf
        self._offered: list[float] = []
        self._more_than: dict[tuple[int, int], float] = {}
        #: Arrivals ever.
        self._count = [0] * len(self.speedup)
        self._offered_at_s = -math.inf

    @property
    def arrivals(self) -> int:
        """How many jobs have ever arrived."""
        return sum(self._count)

    def arrived(self, function: int, work_s: float, patience_s: float, now_s: float, tenant: str = "") -> None:
        """Count an arrival."""
        if self._learned:
            self._approach(function, self.expected(function, tenant))
        self._since_s = min(self._since_s, now_s)
        for mean_s, seen_s in ((self.work_s, work_s), (self.patience_s, patience_s)):
            known_s = mean_s[function]
            mean_s[function] = known_s + (seen_s - known_s) * self._weight if known_s else seen_s
        self._sum[function] = self._aged(function, now_s) + 1.0
        self._at_s[function] = now_s
        self._count[function] += 1

    def ran(self, function: int, speedup: float, tenant: str = "") -> None:
        """Count a run whose speedup over one vCPU was observed."""
        known = self.expected(function, tenant)
        self._approach(function, speedup)
        if speedup != known:
            self._learned.pop((function, tenant), None)
            self._learned[function, tenant] = known + (speedup - known) * self._weight
            if len(self._learned) > TENANTS:
                del self._learned[next(iter(self._learned))]

    def expected(self, function: int, tenant: str) -> float:
        """Return the vCPU equivalents of a tenant's job."""
        return self._learned.get((function, tenant), self._catalogue[function])

    def _approach(self, function: int, speedup: float) -> None:
        self.speedup[function] += (speedup - self.speedup[function]) * self._weight

    def rates(self, now_s: float) -> Sequence[float]:
        """Return arrivals per second, by function."""
        seen_s = now_s - self._since_s
        if seen_s <= 0:
            return [0.0] * len(self._sum)
        # The weights of a memory that has seen `seen_s` add up to memory_s * (1 - exp(-seen_s / memory_s)).  A moment
        # is no basis for a rate: at least a twentieth of the memory is taken as seen.
        seen_s = max(seen_s, 0.05 * self._memory_s)
        weights_s = self._memory_s * -math.expm1(-seen_s / self._memory_s)
        arrivals = [self._aged(function, now_s) for function in range(len(self._sum))]
        asked_for = [work_s > 0 for work_s in self.work_s]
        mean = sum(arrivals) / max(1, sum(asked_for))
        if mean == 0:
            return [0.0] * len(arrivals)
        # Rates as if drawn from a gamma distribution around their mean.
        prior, weight = PRIOR_ARRIVALS, weights_s * (1.0 + PRIOR_ARRIVALS / mean)
        return [(count + prior) / weight if seen else 0.0 for count, seen in zip(arrivals, asked_for, strict=True)]

    def offered(self, now_s: float) -> Sequence[float]:
        """Return, by function, the slots that all its arriving jobs would keep busy; some moments old at most."""
        if not 0 <= now_s - self._offered_at_s <= 0.002 * self._memory_s:
            rates = self.rates(now_s)
            self._offered = [rate * work_s for rate, work_s in zip(rates, self.work_s, strict=True)]
            self._offered_at_s = now_s
            self._more_than.clear()
        return self._offered

    def more_than(self, slots: int, function: int, now_s: float) -> float:
        """Return the probability that more than this many jobs of the function are present, each on a slot: Poisson."""
        offered = self.offered(now_s)[function]
        if (found := self._more_than.get((slots, function))) is None:
            found = self._more_than[slots, function] = _more_than(slots, offered)
        return found

    def likely_more_than(self, slots: int, function: int, now_s: float, of: int) -> float:
        """Return `more_than`, also for a function that was not requested yet.

        How likely a job is to ask for a new function is estimated as Good and Turing do: by the share of the jobs so
        far whose function was asked for once.  Before the first job, all together are taken to keep `of` slots busy,
        and that counts for as long as one job takes.
        """
        if self._count[function]:
            return self.more_than(slots, function, now_s)
        total, unseen = sum(self._count), self._count.count(0)
        if not total:
            return _more_than(slots, of / unseen)
        work_s = sum(self.work_s) / (len(self._count) - unseen)
        offered = work_s * (of + total) / (work_s + now_s - self._since_s) if work_s else 0.0
        return _more_than(slots, offered * self._count.count(1) / total / unseen)

    def _aged(self, function: int, now_s: float) -> float:
        return self._sum[function] * math.exp((self._at_s[function] - now_s) / self._memory_s)


def _more_than(slots: int, offered: float) -> float:
    # Not at the top: every process that knows of policies would load it at its start.
    from scipy.special import gammainc

    return float(gammainc(slots + 1, offered))
