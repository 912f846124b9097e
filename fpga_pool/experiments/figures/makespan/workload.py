"""The workload of the makespan paper, section 5.2, and the steps that its figures share: plan, measure, compare.

1000 jobs, sizes exponential with mean 200 Mb; 0.001 s of compute per Mb; 5 accelerators and 5 Gbit/s per responder,
1 Gbit/s per requester; a deviation of up to 20 % of each compute time and each link.  Our choices for what the paper
leaves open: the deviation is drawn uniformly for every pair of job and accelerator; requesters are drawn uniformly.

`makespan_s` is the makespan of a plan when jobs take other times than it expects (section 5.7).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fpga_pool.conf.policies import policy_as
from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.policy import Adaptive, BatchPolicy, Preparing, Searching
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints
from fpga_pool.experiments.figures.figure import Sample, Samples, Settings, X

# ---- Batches

JOBS, REQUESTERS, RESPONDERS = 1000, 200, 30
ACCELERATORS_PER_RESPONDER = 5
MEAN_MB = 200.0
SECONDS_PER_MB = 0.001
EGRESS_BPS, INGRESS_BPS = 1e9, 5e9
DEVIATION = 0.2
_BITS_PER_MB = 1e6


class Form(StrEnum):
    """The phases of a job that take time."""

    COMPUTE = "compute"
    NETWORK = "network"
    JOINT = "joint"


#: The paper's own algorithm for each form (sections 3.1 to 3.3).
PAPERS_OWN = {Form.COMPUTE: "cim", Form.NETWORK: "nim", Form.JOINT: "ncjm"}
TITLES = {Form.COMPUTE: "(a) computation-intensive", Form.NETWORK: "(b) network-intensive", Form.JOINT: "(c) both"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a batch and of its pool."""

    jobs: int = JOBS
    requesters: int = REQUESTERS
    responders: int = RESPONDERS

    def scaled(self, settings: Settings) -> "Shape":
        """Return the shape scaled by the settings."""
        return Shape(
            jobs=settings.scaled(self.jobs),
            requesters=settings.scaled(self.requesters),
            responders=settings.scaled(self.responders),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draw:
    """The random draw of one seed, which gives every form of a batch the same jobs and hosts."""

    #: (J,) sizes.
    megabits: Floats
    #: (J, A) compute times.
    seconds: Floats
    #: (J,) index of the requester of each job.
    requester: Ints
    #: (R,), (H,) bandwidths of the links.
    egress_bps: Floats
    ingress_bps: Floats


def draw(shape: Shape, seed: int) -> Draw:
    """Draw each quantity from its own generator, so that changing the number of one leaves the others unchanged."""
    sizes, times, ingress, requesters, egress = (np.random.default_rng((seed, number)) for number in range(5))
    accelerators = ACCELERATORS_PER_RESPONDER * shape.responders
    megabits = sizes.exponential(MEAN_MB, shape.jobs)
    deviation = times.uniform(1 - DEVIATION, 1 + DEVIATION, (shape.jobs, accelerators))
    return Draw(
        megabits=megabits,
        seconds=SECONDS_PER_MB * megabits[:, None] * deviation,
        ingress_bps=INGRESS_BPS * ingress.uniform(1 - DEVIATION, 1 + DEVIATION, shape.responders),
        requester=requesters.integers(0, shape.requesters, shape.jobs),
        egress_bps=EGRESS_BPS * egress.uniform(1 - DEVIATION, 1 + DEVIATION, shape.requesters),
    )


def batch(form: Form, shape: Shape, seed: int) -> BatchProblem:
    """Return one batch of one form."""
    problem = mixed(draw(shape, seed), np.full(shape.jobs, form))
    if form is not Form.COMPUTE:
        return problem
    # "We directly set the ingress/egress bandwidth to be infinite."
    return replace(problem, egress_bps=np.full(shape.requesters, np.inf), ingress_bps=np.full(shape.responders, np.inf))


def mixed(drawn: Draw, forms: NDArray[np.str_]) -> BatchProblem:
    """Return a batch whose jobs have these forms (J,): COMPUTE jobs have no input, NETWORK jobs no compute time."""
    seconds = np.where((forms == Form.NETWORK)[:, None], 0.0, drawn.seconds)
    seconds.setflags(write=False)  # shared instead of copied
    return BatchProblem(
        seconds=seconds,
        input_bytes=np.where(forms == Form.COMPUTE, 0, drawn.megabits * (_BITS_PER_MB / 8)).astype(np.int64),
        requester=drawn.requester,
        egress_bps=drawn.egress_bps,
        responder=np.repeat(np.arange(len(drawn.ingress_bps)), ACCELERATORS_PER_RESPONDER),
        ingress_bps=drawn.ingress_bps,
    )


# ---- Planners

#: Our policy, the paper's baselines, and the curve of the best lower bound known.
OURS, BASELINES, BOUND = "makespan", ("sjf", "ljf"), "bound"


def curves(own: str, settings: Settings) -> list[str]:
    """Return the policies of a panel: baselines, the paper's own, further requested ones, and ours."""
    return list(dict.fromkeys([*BASELINES, own, *settings.also, OURS]))


@cache
def planner(name: str, effort: int | None = None) -> BatchPolicy:
    """Return a policy, compiled, with its default parameters except for the effort."""
    policy: BatchPolicy = policy_as("batch", name)
    if effort is not None and isinstance(policy, Searching):
        policy = policy.searching(effort, None, time.perf_counter)
    if isinstance(policy, Preparing):
        policy.prepare()
    return policy


def decide(name: str, problem: BatchProblem, seed: int, effort: int | None = None) -> BatchPlan:
    """Plan a batch."""
    return planner(name, effort).decide(problem, None, 0.0, np.random.default_rng(seed))


def makespans(panel: str, x: X, policies: Sequence[str], problem: BatchProblem, seed: int) -> Iterator[Sample]:
    """Measure the makespan of each policy on one batch, and the best bound that any of them proves."""
    bound_s = 0.0
    for name in policies:
        plan = decide(name, problem, seed)
        bound_s = max(bound_s, plan.lower_bound_s)
        yield Sample(panel, x, name, seed, plan.makespan_s)
    yield Sample(panel, x, BOUND, seed, bound_s)


def improvements(
    samples: Samples, panel: str, names: Sequence[str], over: str, places: Sequence[X]
) -> dict[str, list[float]]:
    """Return the improvement of each policy over another one, in percent, at each place."""
    return {name: [samples.improvement_percent(panel, name, over, x) for x in places] for name in names}


def ratios(samples: Samples, panel: str, names: Sequence[str], over: str) -> dict[str, list[float]]:
    """Return the ratio of each curve to another one, at each place."""
    return {name: [samples.ratio(panel, name, over, x) for x in samples.places(panel, name)] for name in names}


def makespan_s(name: str, believed: BatchProblem, actual: BatchProblem, seed: int) -> float:
    """Return the actual completion time of the last job.

    A policy that decides while the batch runs has a method `meet`, which returns the outcome.  The plan of any other
    policy is kept: each job stays on its accelerator, and the queues keep their order.
    """
    policy = planner(name)
    if isinstance(policy, Adaptive):
        return policy.meet(believed, actual, np.random.default_rng(seed)).makespan_s
    plan = decide(name, believed, seed)
    arrived_s = np.array(actual.release_s)
    np.maximum.at(arrived_s, plan.segment_job, plan.segment_end_s)
    start_s = execute(actual, plan.accelerator, np.argsort(plan.start_s, kind="stable"), arrived_s)
    return float((start_s + actual.seconds[np.arange(actual.jobs), plan.accelerator]).max(initial=0.0))
