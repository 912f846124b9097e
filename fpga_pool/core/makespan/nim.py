"""Network-intensive batches: NIM-OR, model (5) and Algorithm 3 (makespan paper, section 3.2)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.cim import CimParams, place
from fpga_pool.core.makespan.compiled import Kernels, Loops
from fpga_pool.core.makespan.guaranteed import Flows, spread
from fpga_pool.core.makespan.residual import Pieces, as_soon_as_possible
from fpga_pool.core.makespan.stages import Progress, stages
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats, Ints, floats


@dataclass(frozen=True, slots=True, kw_only=True)
class NimParams(CimParams):
    """Parameters of `nim`."""

    residual: str = field(
        default="always",
        metadata={
            "choices": ["none", "start", "always"],
            "help": "When bandwidth that the rates of Algorithm 3 leave is given to running transfers, shortest first: "
            "never, once when the batch starts, or whenever a transfer ends.",
        },
    )

    def __post_init__(self) -> None:
        CimParams.__post_init__(self)
        if self.residual not in {"none", "start", "always"}:
            raise ValueError(f"residual: expected 'none', 'start' or 'always', got {self.residual!r}")


class Nim:
    """Balances the ingress of responders and sends everything at once, at rates that end together.

    Jobs without transfer, and the choice between accelerators of one responder, which the model does not have, go
    where they would end first.
    """

    name = "nim"
    Params = NimParams

    def __init__(self, params: NimParams | None = None, kernels: Kernels = Kernels.COMPILED) -> None:
        self._params, self._kernels = params or NimParams(), kernels

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; only `bisection` uses `rng`, for its first makespan."""
        return self.decide_around(view, EarlierTransfers(), state, rng)

    def decide_around(
        self, view: BatchProblem, earlier: EarlierTransfers, state: PolicyState, rng: np.random.Generator
    ) -> BatchPlan:
        """Plan the batch in what earlier transfers leave, as one that arrives after them (section 3.4)."""
        progress = Progress(view, self._kernels.load(), earlier)
        for jobs in stages(view, floats(view.input_bytes), self._params.size_groups):
            plan_transfers(progress, jobs, self._params, rng)
        return progress.plan(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """What Algorithm 3 returns: the responder of each job (n,), a constant rate for it, and when all are sent."""

    responder: Ints
    bps: Floats
    seconds: float


def algorithm_3(
    bits: Floats, requester: Ints, able: NDArray[np.bool_], egress_bps: Floats, ingress_bps: Floats, params: CimParams,
    rng: np.random.Generator, loops: Loops | None,
) -> Rates | None:  # fmt: skip
    """Return responders and rates, or None where some job finds no bandwidth.

    Parameters
    ----------
    bits : (n,)
        Sizes, above 0.
    requester : (n,)
        Who sends each.
    able : (n, H)
        Which responders can take the job.
    egress_bps, ingress_bps : (R,), (H,)
        Limits; 0 = no bandwidth is left, inf = no limit.
    params, rng, loops
        How CIM-LP is solved.

    """
    # Line 1.  NIM-OR needs no linear program: f is the least of what (4a) and (4b) allow; 1 / f in seconds.
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
    responder = place(ingress_s, np.zeros(len(ingress_bps)), params, rng, loops)
    # Lines 3 to 8.  r_j > 1 where the ingress of j takes longer than 1 / f: then its flows end together at that time.
    load_s = np.bincount(responder, ingress_s[np.arange(len(bits)), responder], len(ingress_bps))
    length_s = np.maximum(load_s, least_s)[responder]
    return Rates(responder, bits / length_s, float(length_s.max()))


def _ingress_s(bits: Floats, able: NDArray[np.bool_], ingress_bps: Floats) -> Floats:
    """Return (n, H) the time of each job alone at the ingress of each responder; inf = cannot run there."""
    with np.errstate(divide="ignore"):
        return np.where(able, bits[:, None] / ingress_bps, np.inf)


def plan_transfers(progress: Progress, jobs: Ints, params: NimParams, rng: np.random.Generator) -> None:
    """Plan a stage of network-intensive jobs (n,); those of responders stay at home (section 3.5)."""
    near = progress.near(jobs)
    moving = np.ones(near.shape, np.bool_)
    for slot in range(progress.problem.accelerators):
        moving[:, slot] = progress.moves(jobs, slot)
    # A job that can be somewhere without a transfer has none.
    stays = (near & ~moving).any(axis=1)
    sent = jobs[~stays]
    if len(sent):
        _transfer(progress, sent, near[~stays], params, rng)
    for job, able in zip(jobs[stays].tolist(), (near & ~moving)[stays], strict=True):
        progress.queue(job, _first(progress, job, np.flatnonzero(able), float(progress.problem.release_s[job])))


def _transfer(
    progress: Progress, jobs: Ints, near: NDArray[np.bool_], params: NimParams, rng: np.random.Generator
) -> None:
    """Plan jobs (n,) that move, each to a responder of the accelerators it may use (n, A)."""
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
    """Return responders and transfers by the scheme of section 3.4 that ends first, in the order tried on a tie.

    The second scheme, to begin at once with the bandwidth that earlier transfers leave, is tried in two readings: what
    they leave over time, and the constant rates of Algorithm 3 on what they leave at all times.  The first scheme is to
    wait until they have ended.
    """
    problem, requester = progress.problem, progress.problem.requester[jobs]
    now_s = float(problem.release_s[jobs].max())
    wait_s = progress.residual.busy_until_s
    idle = (problem.egress_bps, problem.ingress_bps)
    if wait_s <= now_s:
        rates = algorithm_3(bits, requester, able, *idle, params, rng, progress.loops)
        if rates is None:
            raise ArithmeticError("an idle network has no bandwidth")
        return _at_constant_rates(bits, requester, now_s, idle, rates, params)
    filled = _fill(progress, jobs, bits, able, params, rng)
    end_s = max(float(piece.end_s[-1]) for piece in filled[1])
    better = None
    for begin_s, limits in ((now_s, progress.residual.least(now_s)), (wait_s, idle)):
        rates = algorithm_3(bits, requester, able, *limits, params, rng, progress.loops)
        if rates is not None and begin_s + rates.seconds < end_s:
            end_s, better = begin_s + rates.seconds, (begin_s, limits, rates)
    return _at_constant_rates(bits, requester, *better, params) if better else filled


def _at_constant_rates(
    bits: Floats, requester: Ints, begin_s: float, limits: tuple[Floats, Floats], rates: Rates, params: NimParams
) -> tuple[Ints, list[Pieces]]:
    """Return responders and transfers of Algorithm 3, from a time on."""
    flows = Flows(bits, requester, rates.responder, rates.bps)
    return rates.responder, spread(flows, *limits, begin_s, params.residual)


def _fill(
    progress: Progress, jobs: Ints, bits: Floats, able: NDArray[np.bool_], params: NimParams, rng: np.random.Generator
) -> tuple[Ints, list[Pieces]]:
    """Return responders balanced by model (5) and transfers that fill what earlier ones leave, shortest first."""
    problem, residual = progress.problem, progress.residual.copy()
    now_s = float(problem.release_s[jobs].max())
    taken_s = residual.ingress_taken_s(now_s)
    responders = place(_ingress_s(bits, able, problem.ingress_bps), taken_s, params, rng, progress.loops)
    pieces: dict[int, Pieces] = {}
    for k in np.argsort(bits, kind="stable").tolist():
        ends = int(problem.requester[jobs[k]]), int(responders[k])
        pieces[k] = as_soon_as_possible(residual.between(*ends, now_s), float(bits[k]))
        residual.take(*ends, pieces[k])
    return responders, [pieces[k] for k in range(len(jobs))]


def _first(progress: Progress, job: int, slots: Ints, arrives_s: float) -> int:
    """Return the accelerator that would end the job first; of equals, the one of lowest index."""
    seconds = progress.problem.seconds[job]
    ends_s = [max(progress.earliest_s(job, slot), arrives_s) + seconds[slot] for slot in slots.tolist()]
    return int(slots[np.argmin(ends_s)])
