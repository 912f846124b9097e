"""A plan made forwards, compiled where possible: placement as `ect.place`, transfers as `fluid.transmit`."""

import numpy as np

from fpga_pool.core.makespan.compiled import Loops
from fpga_pool.core.makespan.fluid import Segments, Transfers, moves_over_network, transmit
from fpga_pool.core.makespan.placement import place
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Pieces per flow that are provided for at first.
_PIECES = 8
#: How much the less busy link of a flow counts; and what says that flows go by rank.
_OTHER_WEIGHT, _BY_RANK = 0.01, -1.0


def place_ahead(problem: BatchProblem, order: Ints, loops: Loops | None, ingress_cap_s: float = np.inf) -> Ints:
    """Return the accelerator of each job (J,): in `order`, each where it would end first, as `ect.place`.

    No responder gets more ingress than `ingress_cap_s` as long as another one has room.
    """
    if loops is None:
        return place(problem, order, ingress_cap_s)
    computes = problem.seconds.any(where=np.isfinite(problem.seconds))
    accelerator = np.zeros(problem.jobs, np.int64)
    loops.joint.place(
        problem.seconds, order, np.array(problem.requester), np.array(problem.responder), 8.0 * problem.input_bytes,
        1.0 / problem.egress_bps if computes else np.zeros(len(problem.egress_bps)), 1.0 / problem.ingress_bps,
        np.array(problem.local_host), np.array(problem.function), np.array(problem.loaded), np.array(problem.load_s),
        np.array(problem.release_s), np.array(problem.ready_s), np.zeros(len(problem.ingress_bps)), accelerator,
        ingress_cap_s,
    )  # fmt: skip
    return accelerator


def moving_flows(problem: BatchProblem, accelerator: Ints) -> Ints:
    """Return the jobs whose input takes time to reach its accelerator."""
    return np.flatnonzero(moves_over_network(problem, accelerator))


def transmit_in_order(problem: BatchProblem, accelerator: Ints, order: Ints, loops: Loops | None) -> Transfers:
    """As `fluid.transmit`: by strict priority, first in `order` (J,) first."""
    if loops is None:
        return transmit(problem, accelerator, order)
    jobs = moving_flows(problem, accelerator)
    rank = np.empty(problem.jobs, np.int64)
    rank[order] = np.arange(problem.jobs)
    moved = run_compiled(problem, accelerator, jobs, problem.release_s[jobs], rank[jobs], loops)
    arrived_s = np.array(problem.release_s)
    arrived_s[jobs] = moved.arrived_s
    pieces = moved.segments
    return Transfers(arrived_s, Segments(jobs[pieces.flow], pieces.begin_s, pieces.end_s, pieces.bps))


def run_compiled(
    problem: BatchProblem, accelerator: Ints, jobs: Ints, release_s: Floats, rank: Ints | None, loops: Loops
) -> Transfers:
    """Move the inputs of `jobs` (F,) from `release_s` (F,) on; by `rank`, or, without, whoever has most to send first.

    Flows are numbered as in `jobs`; segments are sorted by flow, then begin.
    """
    room, arrived_s = _PIECES * len(jobs) + 64, np.zeros(len(jobs))
    while True:
        flow, begin_s, end_s, bps = np.empty(room, np.int64), np.empty(room), np.empty(room), np.empty(room)
        count = loops.joint.transmit(
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
