"""All cases of the testbed, and their predicted makespans by the fluid model.

The cases are the two experiments of the paper, and one in which rate control is decisive.  Predictions are the planned
makespans, the optimum, and the cost of letting TCP flows compete.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.bounds import lower_bound
from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.makespan.fluid import moves_over_network, transmit
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints
from fpga_pool.experiments.testbed import DNN, GBPS, GOODPUT, MB, WORDCOUNT, Case, planned
from fpga_pool.model.exceptions import InvalidInput

JOBS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A host's cable to the switch; rates are bits per second on the wire."""

    host: str
    egress_bps: float
    ingress_bps: float


COMPETITION = Case(
    name="competition",
    title="four jobs of 300 MB that compute as fast as 1 Gbit/s brings them",
    function="bytecount",
    time=TimeModel(0.0, 8.0 / (GOODPUT * GBPS)),
    input_bytes=(300 * MB,) * JOBS,
    ingress_bps=(GBPS, GBPS / 2),
)

#: Every case, by name, and the names of those whose first policy is also run without rate control.
CASES: Mapping[str, Case] = {case.name: case for case in (WORDCOUNT, DNN, COMPETITION)}
UNCONTROLLED = frozenset({COMPETITION.name})


def requesters(case: Case) -> tuple[str, ...]:
    """Return the names of the hosts that send; job i comes from requester i."""
    return tuple(f"requester-{number}" for number in range(1, len(case.input_bytes) + 1))


def responders(case: Case) -> tuple[str, ...]:
    """Return the names of the hosts that compute."""
    return tuple(f"responder-{number}" for number in range(1, len(case.ingress_bps) + 1))


def patience_s(case: Case) -> float:
    """Return the time limit of a run: several times the duration if everything happened one after the other."""
    alone_s = (8 * size / (GOODPUT * min(case.ingress_bps)) + case.time.seconds(size) for size in case.input_bytes)
    return 60.0 + 3.0 * sum(alone_s)


def nics(case: Case) -> list[Nic]:
    """Return the cables of all hosts."""
    senders = [Nic(host=host, egress_bps=GBPS, ingress_bps=GBPS) for host in requesters(case)]
    receivers = [
        Nic(host=host, egress_bps=GBPS, ingress_bps=ingress_bps)
        for host, ingress_bps in zip(responders(case), case.ingress_bps, strict=True)
    ]
    return senders + receivers


def scaled(case: Case, factor: float) -> Case:
    """Return the case with inputs, and so times, multiplied by `factor`."""
    if not 0 < factor <= 1:
        raise InvalidInput(f"scale: expected more than 0 and at most 1, got {factor:g}")
    sizes = (case.unit_bytes * max(1, round(factor * size / case.unit_bytes)) for size in case.input_bytes)
    return replace(case, input_bytes=tuple(sizes))


# ---- Predictions

#: Relative difference below which shares are equal.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prediction for one policy on one case."""

    plan: BatchPlan
    #: Makespan of the same placement and order without rate limits on the flows.
    uncontrolled_s: float

    @property
    def makespan_s(self) -> float:
        """Makespan of the plan with rate control."""
        return self.plan.makespan_s


def predict(case: Case, policy: str) -> Prediction:
    """Return the prediction for a policy."""
    problem = case.problem()
    plan = planned(case, policy)
    queue: Ints = np.argsort(plan.start_s, kind="stable")
    arrived_s = competing_arrivals_s(problem, plan.accelerator)
    return Prediction(plan=plan, uncontrolled_s=_makespan_s(problem, plan.accelerator, queue, arrived_s))


def optimum_s(problem: BatchProblem) -> float:
    """Return the shortest makespan of all placements and orders, by trying all of them; for few jobs only."""
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
    """Return (J,) the arrival times of the inputs if all are sent from their release on and share links as TCP does."""
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
    """Return (F,) max-min fair rates: all grow together, and a flow stops growing when one of its links is full.

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
    """Return, per link, how much each of its growing flows can still grow; inf if it has none."""
    left_bps = limit_bps - np.bincount(link, rate_bps, len(limit_bps))
    flows = np.bincount(link[growing], minlength=len(limit_bps))
    share_bps = np.full(len(limit_bps), np.inf)
    np.divide(left_bps, flows, out=share_bps, where=flows > 0)
    return share_bps
