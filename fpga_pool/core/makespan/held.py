"""Lower bound by what responders hold: inputs that have arrived, in part or all, and are not computed yet.

A job computes when all of its input is there.  So while b bits move at a rate r at most, and compute for e seconds, the
responder holds b / 2 of them on average, and the job fills at least b^2 / (2 r) + b e / 2 of its backlog, in bits times
seconds, wherever and whenever it runs.

Of a plan that ends at T, let L be what a responder receives in all, B the limit of its ingress, and P what its slots
compute per second at most.  At t it has received no more than B t, and P (T - t) at most is yet to be computed; of this
L - B t at least has yet to arrive.  So it holds at most

    min{ B t,  P (T - t),  P (T - t) - (L - B t) }.

The bound is the least T for which L, summed over the responders, can be all that must be sent, and that area all that
jobs need of it.  It is above the bound by links where slots compute hardly quicker than inputs arrive.
"""

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: Pairs of job and accelerator that are looked at together: what is worked out of them stays in a processor's cache.
_BLOCK_PAIRS = 32_768
#: Doublings after which a length is not looked for any more: numbers at the end of what floats hold.  Halvings of what
#: the bound may be; and by how much it is lowered, far above rounding.
_DOUBLINGS, _HALVINGS, _ROUNDING = 60, 40, 1e-9


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def backlog_bound_s(problem: BatchProblem, jobs: Ints, at_least_s: float) -> float:
    """Return the bound by `jobs` (n,), which all must be sent to a responder; `at_least_s` where it is not above that.

    Each has bits to send.  The bound does not apply where ingress has no limit, or compute takes no time.
    """
    ingress_bps = np.zeros(len(problem.ingress_bps))
    hosts = np.unique(problem.responder)
    ingress_bps[hosts] = problem.ingress_bps[hosts]
    if len(jobs) == 0 or not np.isfinite(ingress_bps).all():
        return at_least_s
    bits = floats(8.0 * problem.input_bytes[jobs])
    least_s, slot_bps = _looked_at(problem, jobs, bits)
    compute_bps = floats(np.bincount(problem.responder, slot_bps, len(ingress_bps)))
    if not np.isfinite(compute_bps).all():
        return at_least_s
    best_bps = np.minimum(problem.egress_bps[problem.requester[jobs]], ingress_bps.max())
    needed = float((bits * (bits / best_bps + least_s)).sum() / 2)
    used = (ingress_bps > 0) & (compute_bps > 0)
    responders = _Responders(ingress_bps[used], compute_bps[used], float(bits.sum()), needed)
    begin_s = float(problem.release_s[jobs].min())
    low_s = max(at_least_s - begin_s, 0.0)
    if responders.can_end_by(low_s):
        return at_least_s
    high_s = max(low_s, responders.sent_s)
    for _ in range(_DOUBLINGS):
        if responders.can_end_by(high_s):
            break
        low_s, high_s = high_s, 2 * high_s
    else:
        return at_least_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if responders.can_end_by(middle_s) else (middle_s, high_s)
    return max(at_least_s, begin_s + low_s * (1 - _ROUNDING))


def _looked_at(problem: BatchProblem, jobs: Ints, bits: Floats) -> tuple[Floats, Floats]:
    """Return (n,) the least seconds of each job, and (A,) how many bits per second an accelerator computes at most."""
    least_s, slot_bps = np.empty(len(jobs)), np.zeros(problem.accelerators)
    rows = max(1, _BLOCK_PAIRS // problem.accelerators)
    for begin in range(0, len(jobs), rows):
        block = slice(begin, begin + rows)
        seconds = problem.seconds[jobs[block]]
        least_s[block] = seconds.min(axis=1)
        np.maximum(slot_bps, (bits[block, None] / seconds).max(axis=0), out=slot_bps)
    return least_s, slot_bps


class _Responders:
    """Says by when all bits can have been sent and computed, as far as backlog goes."""

    def __init__(self, ingress_bps: Floats, compute_bps: Floats, bits: float, needed: float) -> None:
        self._bits, self._needed = bits, needed
        # With as much to receive as both take together one after the other, backlog is not limited by what has yet to
        # arrive; from there on it shrinks, by the same for each responder if all are given the same multiple of that.
        even_bps = ingress_bps * compute_bps / (ingress_bps + compute_bps)
        least_bps = np.minimum(ingress_bps, compute_bps)
        order = np.argsort(least_bps / even_bps)
        self._ingress_bps, self._compute_bps = ingress_bps[order], compute_bps[order]
        self._even_bps, self._least_bps = even_bps[order], least_bps[order]
        self._multiple = self._least_bps / self._even_bps
        # (H,) what all receive if each gets this multiple, capped by what it can take.
        even_left_bps = self._even_bps.sum() - np.cumsum(self._even_bps)
        self._received_bps = np.cumsum(self._least_bps) + self._multiple * even_left_bps
        self._full_bps = np.append(0.0, np.cumsum(self._least_bps))
        self._left_bps = np.append(self._even_bps.sum(), even_left_bps)

    @property
    def sent_s(self) -> float:
        """The least time in which all can be received and computed, backlog apart."""
        return self._bits / float(self._least_bps.sum())

    def can_end_by(self, end_s: float) -> bool:
        """Return whether the backlog of all responders suffices if all is to end by then."""
        if end_s <= 0.0 or end_s < self.sent_s:
            return False
        multiple = max(1.0, self._multiple_of(self._bits / end_s))
        received: NDArray[np.float64] = end_s * np.minimum(multiple * self._even_bps, self._least_bps)
        # It rises with ingress until that may be what is yet to be computed, and falls with compute from when on all
        # may have arrived.
        rising_s = np.maximum(end_s - received / self._compute_bps, 0.0)
        falling_s = np.maximum(end_s - received / self._ingress_bps, 0.0)
        peak, other = self._ingress_bps * rising_s, self._compute_bps * falling_s
        between_s = np.maximum(end_s - rising_s - falling_s, 0.0)
        area = (peak * rising_s + (peak + other) * between_s + other * falling_s).sum() / 2
        return bool(area >= self._needed)

    def _multiple_of(self, bps: float) -> float:
        """Return the multiple with which all receive that much together."""
        full = int(np.searchsorted(self._received_bps, bps))
        if full >= len(self._multiple) or self._left_bps[full] <= 0.0:
            return float(self._multiple[-1])
        return float((bps - self._full_bps[full]) / self._left_bps[full])
