"""What a simulation of gangs is judged by (section 3.3)."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from fpga_pool.core.types import Floats
from fpga_pool.sim.gangs.simulator import Outcome
from fpga_pool.sim.gangs.trace import Trace

#: Run times below this count as this in the bounded slowdown.
TAU_S = 10.0
_BATCHES = 20
#: Share of the gangs at either end that are no part of the batch means: the machine fills, and empties.
_ENDS = 0.1
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean by the method of batch means, and half the width of its 95 % confidence interval."""

    mean: float
    half_width: float


def response_s(trace: Trace, outcome: Outcome) -> Floats:
    """Return the time from the submission of each gang to its end."""
    return outcome.finish_s - trace.submit_s


def bounded_slowdown(trace: Trace, outcome: Outcome) -> Floats:
    """Return how much longer each gang took than alone; of those shorter than tau, than tau."""
    return np.maximum(1.0, response_s(trace, outcome) / np.maximum(TAU_S, trace.run_s))


def batch_means(values: Floats) -> Interval:
    """Return the mean of what is in order of submission, without the ends; not a number where there is too little."""
    ends = int(len(values) * _ENDS)
    middle = values[ends : len(values) - ends]
    if len(middle) < 2 * _BATCHES:
        return Interval(float(middle.mean()) if len(middle) else float("nan"), float("nan"))
    means = np.array([batch.mean() for batch in np.array_split(middle, _BATCHES)])
    deviation = float(means.std(ddof=1)) / _BATCHES**0.5
    return Interval(float(middle.mean()), deviation * float(special.stdtrit(_BATCHES - 1, (1 + _CONFIDENCE) / 2)))


def utilisation(processors: int, trace: Trace, outcome: Outcome) -> tuple[float, float]:
    """Return the share of time, from first submission to last end, in which processors have a process in each tier."""
    if not len(trace.job):
        return 0.0, 0.0
    span_s = processors * (float(outcome.finish_s.max()) - float(trace.submit_s[0]))
    return outcome.front_busy_s / span_s, outcome.behind_busy_s / span_s
