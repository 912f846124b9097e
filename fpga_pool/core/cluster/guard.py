"""The guard of a learned policy: a comparison of two arms, on the responses of the tasks that each of them placed.

Arm 1 is the learned policy, arm 0 the one that it may always be replaced by.  Tasks are distributed by a share that
follows the probability, from the responses so far, that the learned policy is the better one.  Both arms keep a part of
the tasks, so that the comparison goes on and a change is noticed.
"""

from dataclasses import dataclass, field
from math import erf, log, sqrt

#: Share of the learned policy until something is known, and its limits.
FIRST_SHARE, LEAST_SHARE, MOST_SHARE = 0.25, 0.02, 0.97
#: Completed tasks of each arm before the share changes.
_LEAST_COMPLETED = 6
#: An observation weighs this much less with each later one of its arm.
_DECAY = 0.99
_GOLDEN = 0.6180339887498949


@dataclass(slots=True)
class _Arm:
    completed: int = 0
    weight: float = 0.0
    mean: float = 0.0
    square: float = 0.0

    def add(self, value: float) -> None:
        self.completed += 1
        self.weight = self.weight * _DECAY + 1
        self.mean += (value - self.mean) / self.weight
        self.square += (value**2 - self.square) / self.weight

    @property
    def variance(self) -> float:
        """Return that of the mean."""
        return max(self.square - self.mean**2, 0.01) / self.weight


@dataclass(slots=True)
class Guard:
    """Says which arm places a task."""

    placed: int = 0
    arms: tuple[_Arm, _Arm] = field(default_factory=lambda: (_Arm(), _Arm()))
    #: By task: the arm that placed it, and the estimated execution on an idle node.
    unfinished: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of the learned policy."""
        other, learned = self.arms
        if min(other.completed, learned.completed) < _LEAST_COMPLETED:
            return FIRST_SHARE
        deviation = sqrt(2 * (other.variance + learned.variance))
        better = 0.5 * (1 + erf((other.mean - learned.mean) / deviation))
        return min(max(better, LEAST_SHARE), MOST_SHARE)

    def arm(self, task: int, alone_s: float) -> int:
        """Return the arm that places a task; `alone_s` is its estimated execution on an idle node."""
        self.placed += 1
        chosen = int(self.placed * _GOLDEN % 1.0 < self.share)
        self.unfinished[task] = chosen, alone_s
        return chosen

    def completed(self, task: int, response_s: float) -> None:
        """Count the response of a task that has been completed."""
        arm, alone_s = self.unfinished.pop(task, (0, 0.0))
        if alone_s > 0 and response_s > 0:
            self.arms[arm].add(log(response_s / alone_s))
