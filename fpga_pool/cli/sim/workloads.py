"""Batches built from the workloads of three papers, which `fpga-pool-sim problem` offers by name.

Makespan paper: as it describes them.  Lattice paper: tasks, each share of which becomes an independent job, so that a
lower bound of the makespan also holds for the tasks.  Benefit paper: online jobs that are all known in advance, with
the slots that fit them and the loads; a batch models neither their shared DMA nor their CPUs.
"""

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import BatchProblem, Floats, Ints
from fpga_pool.experiments.figures.benefit.runs import (
    ALPHAS,
    CATALOGUES,
    LOAD_S,
    card_pool,
    random_trace,
    reference_catalogue,
)
from fpga_pool.experiments.figures.makespan.workload import JOBS, REQUESTERS, RESPONDERS, Form, Shape, batch
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.benefit.trace import Trace
from fpga_pool.sim.lattice.workloads import MODELS, Wanted, generate

#: Reference catalogues of the benefit paper by name of the workload.
BENEFIT = {f"benefit-{name}": name for name in CATALOGUES}
#: All names; default numbers of tasks or jobs (lattice and benefit paper), rings (lattice) and cards (benefit).
NAMES = (*Form, *MODELS, *BENEFIT)
FEWER, RINGS, CARDS = 200, 4, 1


def problem_named(
    name: str, *, jobs: int | None, requesters: int | None, responders: int | None, seed: int
) -> BatchProblem:
    """Return the batch of the workload with that name; a number that is None takes the default of the workload."""
    if name in list(Form):
        shape = Shape(jobs=jobs or JOBS, requesters=requesters or REQUESTERS, responders=responders or RESPONDERS)
        return batch(Form(name), shape, seed)
    if requesters is not None:
        raise InvalidInput(f"--requesters: not with {name}, whose jobs have no inputs to send")
    if name in MODELS:
        wanted = Wanted(workloads=jobs or FEWER, tasks=(1, 1), enclosures=responders or RINGS)
        return shares_of(generate(name, wanted, np.random.default_rng(seed)).problem)
    pool = card_pool(reference_catalogue(BENEFIT[name]), LOAD_S, cards=responders or CARDS)
    # The highest load of the paper: with one below the number of slots each job is placed as it arrives.
    alpha = ALPHAS[-1]
    seconds = ((jobs or FEWER) + 0.5) / alpha / len(pool.dma_bps)
    return known_beforehand(pool, random_trace(pool, alpha, seconds, seed))


def shares_of(tasks: TaskProblem) -> BatchProblem:
    """Return the shares of rigid tasks as independent jobs, which need no links."""
    fpgas = int(tasks.enclosure_fpgas.sum())
    seconds = np.repeat(tasks.shape_seconds, tasks.shape_fpgas)
    return _computing(
        np.repeat(seconds[:, None], fpgas, axis=1),
        responder=np.repeat(np.arange(len(tasks.enclosure_fpgas)), tasks.enclosure_fpgas),
        release_s=np.repeat(tasks.arrival_s, tasks.shape_fpgas),
    )


def known_beforehand(pool: OnlinePool, trace: Trace) -> BatchProblem:
    """Return online jobs as a batch on the slots of their pool, which are empty and load the functions they compute."""
    fits = pool.fits[pool.slot_kind][:, trace.function].T
    return _computing(
        np.where(fits, trace.work_s[:, None], np.inf),
        responder=pool.slot_card,
        release_s=trace.arrival_s,
        function=trace.function,
        loaded=np.full(len(pool.slot_kind), -1),
        load_s=pool.load_s[pool.slot_kind],
        port=pool.slot_card,
    )


def _computing(seconds: Floats, *, responder: Ints, **others: Floats | Ints) -> BatchProblem:
    """Return a batch without inputs."""
    nothing = np.zeros(len(seconds), np.int64)
    return BatchProblem(
        seconds=seconds,
        input_bytes=nothing,
        requester=nothing,
        egress_bps=np.array([np.inf]),
        responder=responder,
        ingress_bps=np.full(int(responder.max()) + 1, np.inf),
        **others,  # type: ignore[arg-type]  # arrays of the fields that they name
    )
