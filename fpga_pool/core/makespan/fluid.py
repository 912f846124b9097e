"""Transfers as fluid: flows of strict priority on egress and ingress links, from event to event.

The rates are those of the makespan paper, Algorithm 4, lines 5 to 13, in time order instead of job order: a flow gets
min{R_out, R_in}, what flows of higher priority leave of its requester's egress and of its responder's ingress, and
takes more as soon as more is left.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Residual bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9
#: Least rate, as a share of the slower link, at which a flow begins that keeps it.
_LEAST_SHARE = 0.1
#: Times and rates closer than this, relatively, are one and the same.
_SAME = 1e-12
#: Pieces per flow that are provided for at first.
_PIECES = 8
#: How much the less busy link of a flow counts; and what says that flows go by rank.
_OTHER_WEIGHT, _BY_RANK = 0.01, -1.0


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Constant-rate pieces of transfers, (S,) each, sorted by flow, then begin."""

    flow: Ints
    begin_s: Floats
    end_s: Floats
    bps: Floats


def no_segments() -> Segments:
    """Return the segments where nothing moves."""
    return Segments(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """How the inputs of a batch move: when each has arrived (J,), and the pieces, named by job."""

    arrived_s: Floats
    segments: Segments


class FluidNetwork:
    """Flows that share links by strict priority; the caller moves time and may add flows at any time.

    Flows are numbered by priority: flow 0 takes all it can, flow 1 what is left, and so on.  A number is used once.
    Only bits that need time may be added: positive, and with a finite limit on at least one side (see
    `moves_over_network`).
    """

    def __init__(self, egress_bps: Floats, ingress_bps: Floats, flows: int) -> None:
        self.now_s = 0.0
        #: (F,) when each flow ended; nan = not yet.
        self.arrived_s = np.full(flows, np.nan)
        self._egress_bps, self._ingress_bps = egress_bps, ingress_bps
        self._egress_noise_bps = _noise_bps(egress_bps)
        self._ingress_noise_bps = _noise_bps(ingress_bps)
        self._requester = np.zeros(flows, np.int64)
        self._responder = np.zeros(flows, np.int64)
        self._active = np.zeros(flows, np.bool_)
        # A flow has run at its present rate since `_since_s`, with `_left_bits` to go then.  It is touched only when
        # its rate changes, so rounding does not pile up over the events of others.
        self._rate_bps = np.zeros(flows)
        self._since_s = np.zeros(flows)
        self._left_bits = np.zeros(flows)
        self._end_s = np.full(flows, np.inf)
        #: Rates of flows from this number on are out of date.
        self._stale_from = flows
        self._pieces: list[tuple[Ints, Floats, Floats, Floats]] = []

    def add(self, flow: Ints, requester: Ints, responder: Ints, bits: Floats) -> None:
        """Let flows, one row each, begin now."""
        if len(flow) == 0:
            return
        self._requester[flow] = requester
        self._responder[flow] = responder
        self._left_bits[flow] = bits
        self._since_s[flow] = self.now_s
        self._active[flow] = True
        self._stale_from = min(self._stale_from, int(flow.min()))

    def next_s(self) -> float:
        """When the next flow ends if none is added; inf without flows."""
        self._share()
        return float(self._end_s.min(initial=np.inf))

    def advance(self, to_s: float) -> Ints:
        """Move time to `to_s`, at most `next_s()`; return the flows that ended.

        Flows that end together but for rounding end in one step, which may take `now_s` a rounding error past `to_s`.
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
        # The last piece carries exactly what is left, whatever rounding did to its length.
        self._pieces.append((done, begin_s, end_s, self._left_bits[done] / (end_s - begin_s)))
        self.arrived_s[done] = end_s
        self._active[done] = False
        self._rate_bps[done] = 0.0
        self._end_s[done] = np.inf
        self._stale_from = min(self._stale_from, int(done[0]))

    def _share(self) -> None:
        """Set the rates of all flows that an event may have changed: those of lower priority."""
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
        """Return what the flows before the first stale one leave of each link."""
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
    """Flows that keep the rate they begin with; each waits until its links have at least a tenth of what they can.

    Without such a least rate a flow could begin with next to nothing, and keep that.
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
    """Give each flow in turn all that both of its links have left; the links' lists are used up."""
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
    """Return (R, n) the seconds per bit at the best rate of each pair; 0 where nothing crosses the network."""
    best_bps = np.minimum(problem.egress_bps[:, None], problem.ingress_bps[responders])
    return np.where(problem.local_host[:, None] == responders, 0.0, 1.0 / best_bps)


def transfer_s(problem: BatchProblem, responder: int) -> Floats:
    """Return (J,) how long each input takes to `responder` with both links to itself; 0 where nothing moves."""
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
    """Move all inputs of a batch by strict priority, `order` (J,) the highest first, each from its release on.

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
    """Move the inputs of `jobs` (F,) from `release_s` (F,) on; by `rank`, or else the host with the most to send first.

    Flows are numbered as in `jobs`; segments are sorted by flow, then begin.
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
    """Translate flows, numbered by their place in `order` (J,), to jobs; what needs no transfer is there at release."""
    arrived_s = np.array(problem.release_s)
    moved = ~np.isnan(network.arrived_s)
    arrived_s[order[moved]] = network.arrived_s[moved]
    pieces = network.segments()
    job = order[pieces.flow]
    by_job = np.argsort(job, kind="stable")
    return Transfers(arrived_s, Segments(job[by_job], pieces.begin_s[by_job], pieces.end_s[by_job], pieces.bps[by_job]))
