"""Cases of the testbed, and their predicted makespans by the fluid model.

Two experiments of the makespan paper, section 5.1, and one where rate control decides: four requesters with one job
each, two responders with one accelerator each.  What the paper leaves open is decided here and described on the
documentation's page about the testbed.  Predictions are planned makespans, the optimum, and the cost of letting TCP
compete.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.makespan import BaselineParams, Ljf, Sjf
from fpga_pool.core.makespan.bounds.batch import lower_bound
from fpga_pool.core.makespan.greedy.execution import execute
from fpga_pool.core.makespan.network.fluid import moves_over_network, transmit
from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints, floats, ints
from fpga_pool.model.exceptions import InvalidInput

GBPS = 1e9
MB = 1_000_000
PHOTO_BYTES = 2048
JOBS = 4
MTU_BYTES = 1500
#: Ethernet, IPv4 and TCP with time stamps: what a full segment takes on the wire, as tc counts it, and carries.
_WIRE_BYTES = MTU_BYTES + 14
_PAYLOAD_BYTES = MTU_BYTES - 20 - 32
#: The share of a rate on the wire that is payload.
GOODPUT = _PAYLOAD_BYTES / _WIRE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A host's cable to the switch; bits per second on the wire."""

    host: str
    egress_bps: float
    ingress_bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch and the network it crosses; job i comes from requester i."""

    name: str
    title: str
    #: What is computed, by its name among the function models, and how long an accelerator takes.
    function: str
    time: TimeModel
    #: (4,) of each job, a whole number of units.
    input_bytes: tuple[int, ...]
    unit_bytes: int = 1
    #: (2,) on the wire, of each responder.
    ingress_bps: tuple[float, ...]
    #: Jobs that the baselines send ahead of an accelerator that computes.
    prefetch: int = 1
    #: What the paper measured: improvement of its algorithm over a baseline, percent of the baseline.
    paper_percent: Mapping[str, float] = field(default_factory=dict)
    #: Run the first policy's plan without rate control too.
    uncontrolled: bool = False

    @property
    def requesters(self) -> tuple[str, ...]:
        """Names of the hosts that send."""
        return tuple(f"requester-{number}" for number in range(1, len(self.input_bytes) + 1))

    @property
    def responders(self) -> tuple[str, ...]:
        """Names of the hosts that compute."""
        return tuple(f"responder-{number}" for number in range(1, len(self.ingress_bps) + 1))

    @property
    def patience_s(self) -> float:
        """A run that takes longer has gone wrong: everything one after the other, several times over."""
        alone_s = (8 * size / (GOODPUT * min(self.ingress_bps)) + self.time.seconds(size) for size in self.input_bytes)
        return 60.0 + 3.0 * sum(alone_s)

    def nics(self) -> list[Nic]:
        """Return the cables of all hosts."""
        senders = [Nic(host=host, egress_bps=GBPS, ingress_bps=GBPS) for host in self.requesters]
        receivers = [
            Nic(host=host, egress_bps=GBPS, ingress_bps=ingress_bps)
            for host, ingress_bps in zip(self.responders, self.ingress_bps, strict=True)
        ]
        return senders + receivers

    def problem(self) -> BatchProblem:
        """Return what a policy plans, with rates as payload: what is left of the wire's."""
        seconds = [[self.time.seconds(size)] * len(self.responders) for size in self.input_bytes]
        return BatchProblem(
            seconds=floats(seconds),
            input_bytes=ints(self.input_bytes),
            requester=ints(np.arange(len(self.requesters))),
            egress_bps=floats([GOODPUT * GBPS] * len(self.requesters)),
            responder=ints(np.arange(len(self.responders))),
            ingress_bps=floats([GOODPUT * ingress_bps for ingress_bps in self.ingress_bps]),
        )

    def scaled(self, factor: float) -> "Case":
        """Return the case with inputs, and so times, multiplied by `factor`."""
        if not 0 < factor <= 1:
            raise InvalidInput(f"scale: expected more than 0 and at most 1, got {factor:g}")
        sizes = (self.unit_bytes * max(1, round(factor * size / self.unit_bytes)) for size in self.input_bytes)
        return replace(self, input_bytes=tuple(sizes))


WORDCOUNT = Case(
    name="wordcount",
    title="word count, 300/300/300/900 MB (network-intensive)",
    function="bytecount",
    time=TimeModel(0.0, 0.0),
    input_bytes=(300 * MB, 300 * MB, 300 * MB, 900 * MB),
    ingress_bps=(GBPS, GBPS / 2),
    paper_percent={"sjf": 19.56, "ljf": 33.72},
)
DNN = Case(
    name="dnn",
    title="DNN, 6000/6000/6000/18000 photos (computation-intensive)",
    function="dnn",
    # Section 1: 12 MB of photos of 2 KB need about 1 s.
    time=TimeModel(0.0, 1.0 / (6000 * PHOTO_BYTES)),
    input_bytes=(6000 * PHOTO_BYTES, 6000 * PHOTO_BYTES, 6000 * PHOTO_BYTES, 18000 * PHOTO_BYTES),
    unit_bytes=PHOTO_BYTES,
    ingress_bps=(GBPS, GBPS),
    prefetch=0,
    paper_percent={"sjf": 25.80, "ljf": 0.0},
)
COMPETITION = Case(
    name="competition",
    title="four jobs of 300 MB that compute as fast as 1 Gbit/s brings them",
    function="bytecount",
    time=TimeModel(0.0, 8.0 / (GOODPUT * GBPS)),
    input_bytes=(300 * MB,) * JOBS,
    ingress_bps=(GBPS, GBPS / 2),
    uncontrolled=True,
)

#: Every case, by name.
CASES: Mapping[str, Case] = {case.name: case for case in (WORDCOUNT, DNN, COMPETITION)}


# ---- Predictions

#: Shares closer than this, relatively, are equal.
_EQUAL = 1e-9
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One policy on one case."""

    plan: BatchPlan
    #: Makespan of the same places and queues without rate limits on the flows.
    uncontrolled_s: float

    @property
    def makespan_s(self) -> float:
        """Makespan of the plan as it is meant."""
        return self.plan.makespan_s


def predict(case: Case, policy: str) -> Prediction:
    """Return what a policy would do."""
    problem = case.problem()
    plan = _policy(case, policy).decide(problem, None, 0.0, np.random.default_rng(_SEED))
    queue: Ints = np.argsort(plan.start_s, kind="stable")
    arrived_s = competing_arrivals_s(problem, plan.accelerator)
    return Prediction(plan=plan, uncontrolled_s=_makespan_s(problem, plan.accelerator, queue, arrived_s))


def _policy(case: Case, name: str) -> BatchPolicy:
    baselines: Mapping[str, type[Sjf | Ljf]] = {"sjf": Sjf, "ljf": Ljf}
    if name in baselines:
        return baselines[name](BaselineParams(prefetch=case.prefetch))
    policy: BatchPolicy = load_policy("batch", name)
    return policy


def optimum_s(problem: BatchProblem) -> float:
    """Return the shortest makespan of all placements and orders, by trying every one; for a handful of jobs."""
    bound_s = lower_bound(problem).seconds
    best_s = np.inf
    for place in product(range(problem.accelerators), repeat=problem.jobs):
        accelerator = np.array(place)
        for sequence in permutations(range(problem.jobs)):
            order = np.array(sequence)
            arrived_s = transmit(problem, accelerator, order).arrived_s
            best_s = min(best_s, _makespan_s(problem, accelerator, order, arrived_s))
            if best_s <= bound_s * (1 + _EQUAL):
                return best_s
    return best_s


def _makespan_s(problem: BatchProblem, accelerator: Ints, order: Ints, arrived_s: Floats) -> float:
    start_s = execute(problem, accelerator, order, arrived_s)
    return float((start_s + problem.seconds[np.arange(problem.jobs), accelerator]).max())


# Flows that compete -------------------------------------------------------------------------------------------------


def competing_arrivals_s(problem: BatchProblem, accelerator: Ints) -> Floats:
    """Return (J,) when each input has arrived if all are sent from their release on and share links as TCP does."""
    responder = problem.responder[accelerator]
    left_bits = np.where(moves_over_network(problem, accelerator), 8.0 * problem.input_bytes, 0.0)
    arrived_s, now_s = np.array(problem.release_s), 0.0
    while (left_bits > 0).any():
        flows = np.flatnonzero((left_bits > 0) & (problem.release_s <= now_s))
        rate_bps = np.zeros(problem.jobs)
        rate_bps[flows] = fair_rates_bps(
            problem.egress_bps, problem.ingress_bps, problem.requester[flows], responder[flows]
        )
        later_s = problem.release_s[problem.release_s > now_s].min(initial=np.inf)
        ends_s = now_s + left_bits[flows] / rate_bps[flows]
        next_s = min(float(ends_s.min(initial=np.inf)), later_s)
        ended = flows[ends_s <= next_s * (1 + _EQUAL)]
        left_bits = np.maximum(left_bits - rate_bps * (next_s - now_s), 0.0)
        left_bits[ended] = 0.0
        arrived_s[ended] = now_s = next_s
    return arrived_s


def fair_rates_bps(egress_bps: Floats, ingress_bps: Floats, requester: Ints, responder: Ints) -> Floats:
    """Return (F,) max-min fair rates: all grow together, and a flow stops where it meets a link that is full.

    `requester` and `responder` are (F,), the two links of each flow.
    """
    rate_bps = np.zeros(len(requester))
    growing = np.ones(len(requester), np.bool_)
    while growing.any():
        share_bps = np.minimum(
            _share_bps(egress_bps, requester, rate_bps, growing)[requester],
            _share_bps(ingress_bps, responder, rate_bps, growing)[responder],
        )
        step_bps = share_bps[growing].min()
        rate_bps[growing] += step_bps
        growing &= share_bps > step_bps * (1 + _EQUAL)
    return rate_bps


def _share_bps(limit_bps: Floats, link: Ints, rate_bps: Floats, growing: NDArray[np.bool_]) -> Floats:
    """Return, per link, by how much each growing flow on it may still grow; inf where there is none."""
    left_bps = limit_bps - np.bincount(link, rate_bps, len(limit_bps))
    flows = np.bincount(link[growing], minlength=len(limit_bps))
    share_bps = np.full(len(limit_bps), np.inf)
    np.divide(left_bps, flows, out=share_bps, where=flows > 0)
    return share_bps
