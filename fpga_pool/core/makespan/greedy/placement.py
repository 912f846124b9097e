"""Placement of jobs in one pass, each where it would end first."""

import numpy as np

from fpga_pool.core.types import BatchProblem, Ints


def largest_first(problem: BatchProblem) -> Ints:
    """Return (J,) the jobs by group, then falling shortest compute time, then falling input."""
    fastest_s = problem.seconds.min(axis=1, initial=np.inf)
    return np.lexsort((-problem.input_bytes, -fastest_s, problem.group))


def place(problem: BatchProblem, order: Ints, ingress_cap_s: float = np.inf) -> Ints:
    """Return (J,) the accelerator of each job: in `order`, each where it would end first, as far as is known by then.

    An input is taken to arrive when all that was placed before it has crossed the same egress, or the same ingress.
    Ties go to the responder with the least ingress work, then to the lowest index.  Where nothing computes, egress
    takes the same time whatever the placement, and ingress alone decides: largest first on uniform machines.

    The first loads of a configuration port are taken to follow one another.  No responder gets more ingress than
    `ingress_cap_s` as long as another one has room.
    """
    from fpga_pool.core.makespan.kernels import joint

    computes = problem.seconds.any(where=np.isfinite(problem.seconds))
    accelerator = np.zeros(problem.jobs, np.int64)
    joint.place(
        problem.seconds, order, np.array(problem.requester), np.array(problem.responder), 8.0 * problem.input_bytes,
        1.0 / problem.egress_bps if computes else np.zeros(len(problem.egress_bps)), 1.0 / problem.ingress_bps,
        np.array(problem.local_host), np.array(problem.function), np.array(problem.loaded), np.array(problem.load_s),
        np.array(problem.release_s), problem.free_s, np.zeros(len(problem.ingress_bps)),
        np.unique(problem.port, return_inverse=True)[1], accelerator, ingress_cap_s,
    )  # fmt: skip
    return accelerator
