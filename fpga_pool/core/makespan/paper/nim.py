"""`nim`: network-intensive batches by NIM-OR, model (5) and Algorithm 3 (makespan paper, section 3.2).

`spread` applies the rates: each transfer gets its guaranteed rate, and the residual bandwidth goes to the shortest
transfers first (end of the section).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.paper.cim import CimParams, Progress, StagedPolicy, place, stages
from fpga_pool.core.makespan.residual import Pieces, as_soon_as_possible
from fpga_pool.core.parameters import parameter
from fpga_pool.core.types import Floats, Ints, floats

#: Residual bandwidth below this share of a link's limit is rounding noise.
_NOISE = 1e-9
#: Times and rates with a smaller relative difference than this are equal.
_SAME = 1e-12


# ---- Transfers with guaranteed rates


class Flows(NamedTuple):
    """Transfers that begin together, (n,) each; the guaranteed rates `bps` do not exceed the limits of the links."""

    bits: Floats
    requester: Ints
    responder: Ints
    bps: Floats


def spread(flows: Flows, egress_bps: Floats, ingress_bps: Floats, begin_s: float, residual: str) -> list[Pieces]:
    """Return the pieces of each transfer; all begin at `begin_s`.

    Limits are (R,) and (H,), inf = none.  `residual` determines when residual bandwidth is shared: "none", "start" or
    "always" (see `NimParams`).
    """
    if residual == "none":
        return [_last(begin_s, bits, bps) for bits, bps in zip(flows.bits.tolist(), flows.bps.tolist(), strict=True)]
    if residual == "start":
        bps = flows.bps + _shared(flows, np.argsort(flows.bits, kind="stable"), egress_bps, ingress_bps)
        return [_last(begin_s, bits, bps) for bits, bps in zip(flows.bits.tolist(), bps.tolist(), strict=True)]
    return _Running(flows, egress_bps, ingress_bps, begin_s).run()


class _Running:
    """Transfers, simulated event by event; each is updated only on rate changes, so rounding does not accumulate."""

    def __init__(self, flows: Flows, egress_bps: Floats, ingress_bps: Floats, begin_s: float) -> None:
        self._flows, self._egress_bps, self._ingress_bps = flows, egress_bps, ingress_bps
        self._now_s = begin_s
        self._left_bits = np.array(flows.bits)
        self._since_s = np.full(len(flows.bits), begin_s)
        self._bps = np.zeros(len(flows.bits))
        self._end_s = np.full(len(flows.bits), np.inf)
        self._active = np.argsort(flows.bits, kind="stable")
        self._pieces: list[list[tuple[float, float, float]]] = [[] for _ in flows.bits]

    def run(self) -> list[Pieces]:
        while len(self._active):
            self._share()
            self._now_s = float(self._end_s[self._active].min())
            ended = self._end_s[self._active] <= self._now_s * (1 + _SAME)
            for flow in self._active[ended].tolist():
                begin_s, end_s = float(self._since_s[flow]), float(self._end_s[flow])
                self._pieces[flow].append((begin_s, end_s, float(self._left_bits[flow]) / (end_s - begin_s)))
            self._active = self._active[~ended]
        return [Pieces(*(np.array(column) for column in zip(*pieces, strict=True))) for pieces in self._pieces]

    def _share(self) -> None:
        """Set the rates of all active transfers: the guaranteed rates, plus the residual bandwidth to the shortest."""
        active = self._active
        bps = self._flows.bps[active] + _shared(self._flows, active, self._egress_bps, self._ingress_bps)[active]
        changed = np.abs(bps - self._bps[active]) > _SAME * bps
        flow, bps = active[changed], bps[changed]
        elapsed_s = self._now_s - self._since_s[flow]
        for k in np.flatnonzero((elapsed_s > 0) & (self._bps[flow] > 0)).tolist():
            self._pieces[flow[k]].append((float(self._since_s[flow[k]]), self._now_s, float(self._bps[flow[k]])))
        self._left_bits[flow] = np.maximum(self._left_bits[flow] - self._bps[flow] * elapsed_s, 0.0)
        self._since_s[flow] = self._now_s
        self._bps[flow] = bps
        # A transfer takes time even if the clock is too coarse to show it.
        self._end_s[flow] = np.maximum(self._now_s + self._left_bits[flow] / bps, np.nextafter(self._now_s, np.inf))


def _shared(flows: Flows, active: Ints, egress_bps: Floats, ingress_bps: Floats) -> Floats:
    """Return (n,) the shares of the residual bandwidth beside the guaranteed rates of `active`, in their order."""
    more_bps = np.zeros(len(flows.bits))
    out_bps = _left(egress_bps, flows.requester[active], flows.bps[active])
    in_bps = _left(ingress_bps, flows.responder[active], flows.bps[active])
    served = active[(out_bps[flows.requester[active]] > 0) & (in_bps[flows.responder[active]] > 0)]
    out, into = out_bps.tolist(), in_bps.tolist()
    ends = zip(served.tolist(), flows.requester[served].tolist(), flows.responder[served].tolist(), strict=True)
    for flow, u, h in ends:
        bps = min(out[u], into[h])
        if bps > 0.0:
            more_bps[flow] = bps
            out[u] -= bps
            into[h] -= bps
    return more_bps


def _left(limit_bps: Floats, link: Ints, bps: Floats) -> Floats:
    left_bps = limit_bps - np.bincount(link, bps, len(limit_bps))
    left_bps[left_bps < _NOISE * np.where(np.isfinite(limit_bps), limit_bps, 0.0)] = 0.0
    return left_bps


def _last(begin_s: float, bits: float, bps: float) -> Pieces:
    """Return one piece that carries exactly `bits`, whatever the rounding of its length."""
    end_s = max(begin_s + bits / bps, float(np.nextafter(begin_s, np.inf)))
    return Pieces(np.array([begin_s]), np.array([end_s]), np.array([bits / (end_s - begin_s)]))


# ---- The policy


@dataclass(frozen=True, slots=True, kw_only=True)
class NimParams(CimParams):
    """Parameters of `nim`."""

    residual: str = parameter(
        "always",
        "When bandwidth left over by the rates of Algorithm 3 is given to running transfers, shortest "
        "first: never, once at the start of the batch, or whenever a transfer ends.",
        choices=["none", "start", "always"],
    )


class Nim(StagedPolicy[NimParams]):
    """Balance the ingress of responders and send all inputs at once, at rates that end together.

    Two decisions are not part of the model: jobs without transfer, and the choice between accelerators of a responder.
    In both, a job is placed where it would end first.
    """

    name = "nim"
    Params = NimParams

    def _plan(self, progress: Progress, rng: np.random.Generator) -> None:
        for jobs in stages(progress.problem, floats(progress.problem.input_bytes), self._params.size_groups):
            plan_transfers(progress, jobs, self._params, rng)


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Result of Algorithm 3: the responder and the constant rate of each job (n,), and the time when all are sent."""

    responder: Ints
    bps: Floats
    seconds: float


def algorithm_3(
    bits: Floats, requester: Ints, able: NDArray[np.bool_], egress_bps: Floats, ingress_bps: Floats, params: CimParams,
    rng: np.random.Generator,
) -> Rates | None:  # fmt: skip
    """Return responders and rates, or None if there is no bandwidth for some job.

    Jobs have `bits` (n,) above 0, sent by `requester` (n,), and may use the responders in `able` (n, H).  Limits are
    (R,) and (H,); 0 = no bandwidth is left, inf = no limit.  `params` and `rng` determine how CIM-LP is solved.
    """
    # Line 1.  NIM-OR needs no linear program: f is the minimum of the limits by (4a) and (4b); 1 / f is in seconds.
    used_bps = ingress_bps[able.any(axis=0)]
    sent_bits = np.bincount(requester, bits, len(egress_bps))
    senders = sent_bits > 0
    if (egress_bps[senders] == 0).any() or not used_bps.any():
        return None
    least_s = max(float(bits.sum() / used_bps.sum()), float((sent_bits[senders] / egress_bps[senders]).max()))
    # Line 2.  Model (5) with r in seconds, r / f: e_ij is the time of job i alone at the ingress of j.
    ingress_s = _ingress_s(bits, able, ingress_bps)
    if not np.isfinite(ingress_s).any(axis=1).all():
        return None
    responder = place(ingress_s, np.zeros(len(ingress_bps)), params, rng)
    # Lines 3 to 8.  r_j > 1 where the ingress of j takes longer than 1 / f: then its flows end together at that time.
    load_s = np.bincount(responder, ingress_s[np.arange(len(bits)), responder], len(ingress_bps))
    length_s = np.maximum(load_s, least_s)[responder]
    return Rates(responder, bits / length_s, float(length_s.max()))


def _ingress_s(bits: Floats, able: NDArray[np.bool_], ingress_bps: Floats) -> Floats:
    """Return (n, H) the time of each job alone at the ingress of each responder; inf = cannot run there."""
    with np.errstate(divide="ignore"):
        return np.where(able, bits[:, None] / ingress_bps, np.inf)


def plan_transfers(progress: Progress, jobs: Ints, params: NimParams, rng: np.random.Generator) -> None:
    """Plan a stage of network-intensive jobs (n,); responders keep their own jobs (section 3.5)."""
    near = progress.near(jobs)
    moving = np.ones(near.shape, np.bool_)
    for slot in range(progress.problem.accelerators):
        moving[:, slot] = progress.moves(jobs, slot)
    # A job that can run somewhere without a transfer stays there.
    stays = (near & ~moving).any(axis=1)
    sent = jobs[~stays]
    if len(sent):
        _transfer(progress, sent, near[~stays], params, rng)
    for job, able in zip(jobs[stays].tolist(), (near & ~moving)[stays], strict=True):
        progress.queue(job, _first(progress, job, np.flatnonzero(able), float(progress.problem.release_s[job])))


def _transfer(
    progress: Progress, jobs: Ints, near: NDArray[np.bool_], params: NimParams, rng: np.random.Generator
) -> None:
    """Plan jobs (n,) with transfers, each to a responder with accelerators that it may use, `near` (n, A)."""
    problem = progress.problem
    able = np.zeros((len(jobs), len(problem.ingress_bps)), np.bool_)
    for slot, responder in enumerate(problem.responder.tolist()):
        able[near[:, slot], responder] = True
    bits = floats(8.0 * problem.input_bytes[jobs])
    responders, pieces = _better_scheme(progress, jobs, bits, able, params, rng)
    arrives_s = np.array([piece.end_s[-1] for piece in pieces])
    for k in np.argsort(arrives_s, kind="stable").tolist():
        job = int(jobs[k])
        slots = np.flatnonzero(near[k] & (problem.responder == responders[k]))
        slot = _first(progress, job, slots, float(arrives_s[k]))
        progress.send(job, slot, pieces[k])
        progress.queue(job, slot)


def _better_scheme(
    progress: Progress, jobs: Ints, bits: Floats, able: NDArray[np.bool_], params: NimParams, rng: np.random.Generator
) -> tuple[Ints, list[Pieces]]:
    """Return responders and transfers by the scheme of section 3.4 that ends first; on a tie, the one tried first.

    The first scheme waits until earlier transfers have ended.  The second begins immediately with the bandwidth that
    they leave, and is tried in two variants: using the residual bandwidth as it varies over time, and the constant
    rates of Algorithm 3 with the bandwidth that is available at all times.
    """
    problem, requester = progress.problem, progress.problem.requester[jobs]
    now_s = float(problem.release_s[jobs].max())
    wait_s = progress.residual.busy_until_s
    idle = (problem.egress_bps, problem.ingress_bps)
    if wait_s <= now_s:
        rates = algorithm_3(bits, requester, able, *idle, params, rng)
        if rates is None:
            raise ArithmeticError("no bandwidth on an idle network")
        return _at_constant_rates(bits, requester, now_s, idle, rates, params)
    filled = _fill(progress, jobs, bits, able, params, rng)
    end_s = max(float(piece.end_s[-1]) for piece in filled[1])
    better = None
    for begin_s, limits in ((now_s, progress.residual.least(now_s)), (wait_s, idle)):
        rates = algorithm_3(bits, requester, able, *limits, params, rng)
        if rates is not None and begin_s + rates.seconds < end_s:
            end_s, better = begin_s + rates.seconds, (begin_s, limits, rates)
    return _at_constant_rates(bits, requester, *better, params) if better else filled


def _at_constant_rates(
    bits: Floats, requester: Ints, begin_s: float, limits: tuple[Floats, Floats], rates: Rates, params: NimParams
) -> tuple[Ints, list[Pieces]]:
    """Return responders and transfers of Algorithm 3 from `begin_s` on."""
    flows = Flows(bits, requester, rates.responder, rates.bps)
    return rates.responder, spread(flows, *limits, begin_s, params.residual)


def _fill(
    progress: Progress, jobs: Ints, bits: Floats, able: NDArray[np.bool_], params: NimParams, rng: np.random.Generator
) -> tuple[Ints, list[Pieces]]:
    """Return responders balanced by model (5), and transfers in the residual bandwidth, shortest first."""
    problem, residual = progress.problem, progress.residual.copy()
    now_s = float(problem.release_s[jobs].max())
    taken_s = residual.ingress_taken_s(now_s)
    responders = place(_ingress_s(bits, able, problem.ingress_bps), taken_s, params, rng)
    pieces: dict[int, Pieces] = {}
    for k in np.argsort(bits, kind="stable").tolist():
        ends = int(problem.requester[jobs[k]]), int(responders[k])
        pieces[k] = as_soon_as_possible(residual.between(*ends, now_s), float(bits[k]))
        residual.take(*ends, pieces[k])
    return responders, [pieces[k] for k in range(len(jobs))]


def _first(progress: Progress, job: int, slots: Ints, arrives_s: float) -> int:
    """Return the accelerator that would end the job first; ties go to the lowest index."""
    seconds = progress.problem.seconds[job]
    ends_s = [max(progress.earliest_s(job, slot), arrives_s) + seconds[slot] for slot in slots.tolist()]
    return int(slots[np.argmin(ends_s)])
