"""The testbed of the makespan paper, section 5.1: its two experiments, which `fpga-pool-sim testbed` runs.

Four requesters have one job each, two responders one accelerator each.  Details that the paper leaves open are decided
here and described on the documentation's page about the testbed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.makespan import BaselineParams, Ljf, Sjf
from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.core.types import BatchPlan, BatchProblem, floats, ints

GBPS = 1e9
MB = 1_000_000
PHOTO_BYTES = 2048
MTU_BYTES = 1500
#: Size of a full segment on the wire, as tc counts it, and its payload: Ethernet, IPv4 and TCP with time stamps.
_WIRE_BYTES = MTU_BYTES + 14
_PAYLOAD_BYTES = MTU_BYTES - 20 - 32
#: The share of a rate on the wire that is payload.
GOODPUT = _PAYLOAD_BYTES / _WIRE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch and its network; job i comes from requester i."""

    name: str
    title: str
    #: Name of the computed function among the function models, and its time on an accelerator.
    function: str
    time: TimeModel
    #: (4,) input of each job, a whole number of units.
    input_bytes: tuple[int, ...]
    unit_bytes: int = 1
    #: (2,) ingress of each responder, on the wire.
    ingress_bps: tuple[float, ...]
    #: Number of jobs that the baselines send ahead to an accelerator that computes.
    prefetch: int = 1
    #: Improvement of the paper's algorithm over a baseline, as it measured, in percent of the baseline.
    paper_percent: Mapping[str, float] = field(default_factory=dict)

    def problem(self) -> BatchProblem:
        """Return the problem to plan, with rates of payload instead of those on the wire."""
        seconds = [[self.time.seconds(size)] * len(self.ingress_bps) for size in self.input_bytes]
        return BatchProblem(
            seconds=floats(seconds),
            input_bytes=ints(self.input_bytes),
            requester=ints(np.arange(len(self.input_bytes))),
            egress_bps=floats([GOODPUT * GBPS] * len(self.input_bytes)),
            responder=ints(np.arange(len(self.ingress_bps))),
            ingress_bps=floats([GOODPUT * ingress_bps for ingress_bps in self.ingress_bps]),
        )


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


def planned(case: Case, policy: str) -> BatchPlan:
    """Return the plan of a policy; it is deterministic."""
    baselines: Mapping[str, type[Sjf | Ljf]] = {"sjf": Sjf, "ljf": Ljf}
    rule: BatchPolicy
    if policy in baselines:
        rule = baselines[policy](BaselineParams(prefetch=case.prefetch))
    else:
        rule = load_policy("batch", policy)
    return rule.decide(case.problem(), None, 0.0, np.random.default_rng(0))
