"""Fluid model of transfers: flows with strict priorities on egress and ingress links, simulated event by event.

The rates are those of the makespan paper, Algorithm 4, lines 5 to 13, in time order instead of job order.  A flow gets
min{R_out, R_in}: the smaller of the bandwidths that flows of higher priority leave on its requester's egress and on its
responder's ingress.  Its rate increases as soon as these do.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Residual bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9
#: Minimum initial rate of a flow that keeps its rate, as a share of its slower link's limit.
_LEAST_SHARE = 0.1
#: Times and rates with a smaller relative difference than this are equal.
_SAME = 1e-12
#: Pieces per flow for which memory is allocated at first.
_PIECES = 8
#: Weight of the less busy link in the priority of a flow; and the weight that selects priority by rank.
_OTHER_WEIGHT, _BY_RANK = 0.01, -1.0


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Constant-rate pieces of transfers, (S,) each, sorted by flow, then begin."""

    flow: Ints
    begin_s: Floats
    end_s: Floats
    bps: Floats


def no_segments() -> Segments:
    """Return empty segments."""
    return Segments(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Transfers of the inputs of a batch: the time when each has arrived (J,), and the pieces, with jobs as flows."""

    arrived_s: Floats
    segments: Segments


class FluidNetwork:
    """Flows that share links by strict priority; the caller advances time and may add flows at any time.

    Flows are numbered by priority: flow 0 takes all it can, flow 1 takes all it can of the rest, and so on.  A number
    is used once.  Only flows that take time may be added: with bits > 0 and a finite limit on at least one side (see
    `moves_over_network`).
    """

    def __init__(self, egress_bps: Floats, ingress_bps: Floats, flows: int) -> None:
        self.now_s = 0.0
        #: (F,) the time when each flow ended; nan = not yet.
        self.arrived_s = np.full(flows, np.nan)
        self._egress_bps, self._ingress_bps = egress_bps, ingress_bps
        self._egress_noise_bps = _noise_bps(egress_bps)
        self._ingress_noise_bps = _noise_bps(ingress_bps)
        self._requester = np.zeros(flows, np.int64)
        self._responder = np.zeros(flows, np.int64)
        self._active = np.zeros(flows, np.bool_)
        # A flow has run at its present rate since `_since_s`, when it had `_left_bits` to send.  It is updated only
        # when its rate changes, so the events of other flows do not accumulate rounding errors.
        self._rate_bps = np.zeros(flows)
        self._since_s = np.zeros(flows)
        self._left_bits = np.zeros(flows)
        self._end_s = np.full(flows, np.inf)
        #: Rates of flows from this number on are out of date.
        self._stale_from = flows
        self._pieces: list[tuple[Ints, Floats, Floats, Floats]] = []

    def add(self, flow: Ints, requester: Ints, responder: Ints, bits: Floats) -> None:
        """Start flows now, one per row."""
        if len(flow) == 0:
            return
        self._requester[flow] = requester
        self._responder[flow] = responder
        self._left_bits[flow] = bits
        self._since_s[flow] = self.now_s
        self._active[flow] = True
        self._stale_from = min(self._stale_from, int(flow.min()))

    def next_s(self) -> float:
        """Return the time when the next flow ends if none is added; inf without flows."""
        self._share()
        return float(self._end_s.min(initial=np.inf))

    def advance(self, to_s: float) -> Ints:
        """Advance time to `to_s`, at most `next_s()`; return the flows that ended.

        Flows whose ends differ only by rounding end in one step, which may move `now_s` a rounding error past `to_s`.
        """
        next_s = self.next_s()
        if not self.now_s <= to_s <= next_s:
            raise ValueError(f"to_s: expected {self.now_s}..{next_s}, got {to_s}")
        done = np.flatnonzero(self._end_s <= to_s * (1 + _SAME))
        self.now_s = max(to_s, float(self._end_s[done].max(initial=0.0)))
        if len(done):
            self._end(done)
        return done

    def segments(self) -> Segments:
        """Return the pieces of the flows that ended."""
        if not self._pieces:
            return no_segments()
        flow, begin_s, end_s, bps = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        order = np.lexsort((begin_s, flow))
        order = order[bps[order] > 0]
        return Segments(flow[order], begin_s[order], end_s[order], bps[order])

    def _end(self, done: Ints) -> None:
        begin_s, end_s = self._since_s[done], self._end_s[done]
        # The last piece carries exactly the remaining bits, whatever the rounding of its length.
        self._pieces.append((done, begin_s, end_s, self._left_bits[done] / (end_s - begin_s)))
        self.arrived_s[done] = end_s
        self._active[done] = False
        self._rate_bps[done] = 0.0
        self._end_s[done] = np.inf
        self._stale_from = min(self._stale_from, int(done[0]))

    def _share(self) -> None:
        """Set the rates of the flows that an event may have changed: the event's flow and those of lower priority."""
        first = self._stale_from
        self._stale_from = len(self._active)
        low = first + np.flatnonzero(self._active[first:])
        if len(low) == 0:
            return
        egress_bps = self._residual_bps(self._egress_bps, self._egress_noise_bps, self._requester[:first])
        ingress_bps = self._residual_bps(self._ingress_bps, self._ingress_noise_bps, self._responder[:first])
        requester, responder = self._requester[low], self._responder[low]
        rate_bps = np.zeros(len(low))
        served = np.flatnonzero((egress_bps[requester] > 0) & (ingress_bps[responder] > 0))
        rate_bps[served] = _strict_priority(
            egress_bps.tolist(), ingress_bps.tolist(), requester[served].tolist(), responder[served].tolist(),
            self._egress_noise_bps.tolist(), self._ingress_noise_bps.tolist(),
        )  # fmt: skip
        changed = np.abs(rate_bps - self._rate_bps[low]) > _SAME * rate_bps
        self._set_rates(low[changed], rate_bps[changed])

    def _residual_bps(self, limit_bps: Floats, noise_bps: Floats, link: Ints) -> Floats:
        """Return the bandwidth that flows leave on each link; flow f crosses `link[f]`."""
        left_bps = limit_bps - np.bincount(link, self._rate_bps[: len(link)], len(limit_bps))
        return np.where(left_bps > noise_bps, left_bps, 0.0)

    def _set_rates(self, flow: Ints, rate_bps: Floats) -> None:
        begin_s, old_bps = self._since_s[flow], self._rate_bps[flow]
        sent = (old_bps > 0) & (begin_s < self.now_s)
        if sent.any():
            ends_s = np.full(int(sent.sum()), self.now_s)
            self._pieces.append((flow[sent], begin_s[sent], ends_s, old_bps[sent]))
        left_bits = np.maximum(self._left_bits[flow] - old_bps * (self.now_s - begin_s), 0.0)
        end_s = np.full(len(flow), np.inf)
        np.divide(left_bits, rate_bps, out=end_s, where=rate_bps > 0)
        # A transfer takes time even if the clock is too coarse to show it.
        end_s = np.maximum(end_s + self.now_s, np.nextafter(self.now_s, np.inf))
        self._left_bits[flow] = left_bits
        self._since_s[flow] = self.now_s
        self._rate_bps[flow] = rate_bps
        self._end_s[flow] = end_s


class HeldNetwork(FluidNetwork):
    """Flows that keep their initial rate; each waits until it gets at least a tenth of its slower link's limit.

    Without such a minimum, a flow could begin at a tiny rate and keep it.
    """

    def _share(self) -> None:
        if self._stale_from == len(self._active):
            return
        self._stale_from = len(self._active)
        waiting = np.flatnonzero(self._active & (self._rate_bps == 0))
        egress_bps = self._residual_bps(self._egress_bps, self._egress_noise_bps, self._requester)
        ingress_bps = self._residual_bps(self._ingress_bps, self._ingress_noise_bps, self._responder)
        for flow, u, h in zip(
            waiting.tolist(), self._requester[waiting].tolist(), self._responder[waiting].tolist(), strict=True
        ):
            rate_bps = min(egress_bps[u], ingress_bps[h])
            if rate_bps >= _LEAST_SHARE * min(self._egress_bps[u], self._ingress_bps[h]):
                self._set_rates(np.array([flow]), np.array([rate_bps]))
                egress_bps[u] -= rate_bps
                ingress_bps[h] -= rate_bps


def _noise_bps(limit_bps: Floats) -> Floats:
    return np.where(np.isfinite(limit_bps), _NOISE * limit_bps, 0.0)


def _strict_priority(
    egress_bps: list[float],
    ingress_bps: list[float],
    requester: list[int],
    responder: list[int],
    egress_noise_bps: list[float],
    ingress_noise_bps: list[float],
) -> list[float]:
    """Return the rates if each flow in turn takes all that both its links have left; modifies the links' lists."""
    rates_bps = []
    for u, h in zip(requester, responder, strict=True):
        rate_bps = min(egress_bps[u], ingress_bps[h])
        if rate_bps > 0.0:
            left_bps = egress_bps[u] - rate_bps
            egress_bps[u] = left_bps if left_bps > egress_noise_bps[u] else 0.0
            left_bps = ingress_bps[h] - rate_bps
            ingress_bps[h] = left_bps if left_bps > ingress_noise_bps[h] else 0.0
        rates_bps.append(rate_bps)
    return rates_bps


def seconds_per_bit(problem: BatchProblem, responders: Ints) -> Floats:
    """Return (R, n) the seconds per bit at the best rate of each pair; 0 if both are the same host."""
    best_bps = np.minimum(problem.egress_bps[:, None], problem.ingress_bps[responders])
    return np.where(problem.local_host[:, None] == responders, 0.0, 1.0 / best_bps)


def transfer_s(problem: BatchProblem, responder: int) -> Floats:
    """Return (J,) the transfer time of each input to `responder` if it had both links to itself; 0 on the same host."""
    s_per_bit = seconds_per_bit(problem, np.array([responder]))[:, 0]
    return 8.0 * problem.input_bytes * s_per_bit[problem.requester]


def moves_over_network(problem: BatchProblem, accelerator: Ints) -> NDArray[np.bool_]:
    """Return (J,) whether the input of each job takes time to reach its `accelerator` (J,)."""
    responder = problem.responder[accelerator]
    limited = np.isfinite(problem.egress_bps[problem.requester]) | np.isfinite(problem.ingress_bps[responder])
    local = problem.local_host[problem.requester] == responder
    moves: NDArray[np.bool_] = (problem.input_bytes > 0) & limited & ~local
    return moves


def moving_flows(problem: BatchProblem, accelerator: Ints) -> Ints:
    """Return the jobs whose input takes time to reach its accelerator."""
    return np.flatnonzero(moves_over_network(problem, accelerator))


def transmit(problem: BatchProblem, accelerator: Ints, order: Ints) -> Transfers:
    """Transfer all inputs of a batch by strict priority, each from its release on; `order` (J,) is highest first.

    Job j runs on `accelerator` (J,).
    """
    jobs = moving_flows(problem, accelerator)
    rank = np.empty(problem.jobs, np.int64)
    rank[order] = np.arange(problem.jobs)
    moved = share(problem, accelerator, jobs, problem.release_s[jobs], rank[jobs])
    arrived_s = np.array(problem.release_s)
    arrived_s[jobs] = moved.arrived_s
    pieces = moved.segments
    return Transfers(arrived_s, Segments(jobs[pieces.flow], pieces.begin_s, pieces.end_s, pieces.bps))


def share(
    problem: BatchProblem, accelerator: Ints, jobs: Ints, release_s: Floats, rank: Ints | None = None
) -> Transfers:
    """Transfer the inputs of `jobs` (F,) from `release_s` (F,) on; by `rank`, or else those of the busiest links first.

    The busiest link is the one that needs the most time to send its remaining bits.  Flows are numbered as in `jobs`;
    segments are sorted by flow, then begin.
    """
    from fpga_pool.core.makespan.kernels import joint

    room, arrived_s = _PIECES * len(jobs) + 64, np.zeros(len(jobs))
    while True:
        flow, begin_s, end_s, bps = np.empty(room, np.int64), np.empty(room), np.empty(room), np.empty(room)
        count = joint.transmit(
            np.zeros(len(jobs), np.int64) if rank is None else rank,
            problem.requester[jobs], problem.responder[accelerator[jobs]], 8.0 * problem.input_bytes[jobs],
            np.array(release_s), np.array(problem.egress_bps), np.array(problem.ingress_bps), arrived_s,
            _BY_RANK if rank is not None else _OTHER_WEIGHT,
            flow, begin_s, end_s, bps,
        )  # fmt: skip
        if count >= 0:
            break
        room *= 4
    used = np.lexsort((begin_s[:count], flow[:count]))
    return Transfers(arrived_s, Segments(flow[used], begin_s[used], end_s[used], bps[used]))


def name_by_job(problem: BatchProblem, network: FluidNetwork, order: Ints) -> Transfers:
    """Translate flows, numbered by position in `order` (J,), to jobs; inputs without transfer arrive at release."""
    arrived_s = np.array(problem.release_s)
    moved = ~np.isnan(network.arrived_s)
    arrived_s[order[moved]] = network.arrived_s[moved]
    pieces = network.segments()
    job = order[pieces.flow]
    by_job = np.argsort(job, kind="stable")
    return Transfers(arrived_s, Segments(job[by_job], pieces.begin_s[by_job], pieces.end_s[by_job], pieces.bps[by_job]))
