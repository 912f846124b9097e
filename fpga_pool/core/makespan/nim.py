"""Network-intensive batches: NIM-OR, model (5) and Algorithm 3 (paper 000, section 3.2)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.cim import CimParams, place
from fpga_pool.core.makespan.guaranteed import Flows, spread
from fpga_pool.core.makespan.residual import as_soon_as_possible
from fpga_pool.core.makespan.stages import Progress, stages
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints, floats


@dataclass(frozen=True, slots=True, kw_only=True)
class NimParams(CimParams):
    """Knobs of `nim`."""

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

    def __init__(self, params: NimParams | None = None) -> None:
        self._params = params or NimParams()

    def supports(self, view: BatchProblem) -> bool:
        """Every batch."""
        return True

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; only `bisection` uses `rng`, for its first make-span."""
        progress = Progress(view)
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
    rng: np.random.Generator,
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
    params, rng
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
    if progress.sends(float(problem.release_s[jobs].max())):
        _fill(progress, jobs, bits, near, able, params, rng)
        return
    begin_s, rates, limits = _better_scheme(progress, jobs, bits, able, params, rng)
    flows = Flows(bits, problem.requester[jobs], rates.responder, rates.bps)
    pieces = spread(flows, *limits, begin_s, params.residual)
    arrives_s = np.array([piece.end_s[-1] for piece in pieces])
    for k in np.argsort(arrives_s, kind="stable").tolist():
        job = int(jobs[k])
        slots = np.flatnonzero(near[k] & (problem.responder == rates.responder[k]))
        slot = _first(progress, job, slots, float(arrives_s[k]))
        progress.send(job, slot, pieces[k])
        progress.queue(job, slot)


def _fill(
    progress: Progress, jobs: Ints, bits: Floats, near: NDArray[np.bool_], able: NDArray[np.bool_], params: NimParams,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Plan a later group of a batch: it takes what earlier ones leave over time, shortest first (end of section 3.2).

    One after the other at rates of their own, each group would wait for the busiest requester of the one before.
    """
    problem = progress.problem
    seconds = _ingress_s(bits, able, problem.ingress_bps)
    responders = place(seconds, progress.residual.received_bits / problem.ingress_bps, params, rng)
    for k in np.argsort(bits, kind="stable").tolist():
        job, responder = int(jobs[k]), int(responders[k])
        left = progress.residual.between(int(problem.requester[job]), responder, float(problem.release_s[job]))
        pieces = as_soon_as_possible(left, float(bits[k]))
        slots = np.flatnonzero(near[k] & (problem.responder == responder))
        slot = _first(progress, job, slots, float(pieces.end_s[-1]))
        progress.send(job, slot, pieces)
        progress.queue(job, slot)


def _better_scheme(
    progress: Progress, jobs: Ints, bits: Floats, able: NDArray[np.bool_], params: NimParams, rng: np.random.Generator
) -> tuple[float, Rates, tuple[Floats, Floats]]:
    """Return when to begin, the rates, and the limits they keep: the better of the schemes of section 3.4.

    The batch waits until all earlier transfers have ended, or begins at once with the bandwidth they leave.  These
    change over time; what is left at all times from then on is safe.
    """
    problem = progress.problem
    now_s = float(problem.release_s[jobs].max())
    wait_s = max(now_s, progress.residual.busy_until_s)
    limits = (problem.egress_bps, problem.ingress_bps)
    requester = problem.requester[jobs]
    waiting = algorithm_3(bits, requester, able, *limits, params, rng)
    if waiting is None:
        raise ArithmeticError("an idle network has no bandwidth")
    if wait_s > now_s:
        left = progress.residual.least(now_s)
        at_once = algorithm_3(bits, requester, able, *left, params, rng)
        if at_once is not None and now_s + at_once.seconds <= wait_s + waiting.seconds:
            return now_s, at_once, left
    return wait_s, waiting, limits


def _first(progress: Progress, job: int, slots: Ints, arrives_s: float) -> int:
    """Return the accelerator that would end the job first; of equals, the one of lowest index."""
    seconds = progress.problem.seconds[job]
    ends_s = [max(progress.earliest_s(job, slot), arrives_s) + seconds[slot] for slot in slots.tolist()]
    return int(slots[np.argmin(ends_s)])
