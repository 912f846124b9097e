"""Local search on plans in reversed time; the compiled part is `kernels.local_search`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import BatchProblem, Floats, Ints, floats, ints

#: Capacity of a queue beyond twice the initial length of the longest one.
_SPARE = 8
#: Number of a job's quickest slots, to one of which it is mostly moved.
_QUICK = 8
#: Rows that are partitioned at a time, to limit memory.
_ROWS = 1000


class Instance(NamedTuple):
    """The constant part of a search: J jobs, A accelerators, R requesters, H responders."""

    #: (J, A)
    seconds: Floats
    #: (J,), (J,), (J,): the source and the size of the input, and its turn among a responder's flows, lowest first.
    requester: Ints
    bits: Floats
    turn: Floats
    #: (A,)
    responder: Ints
    #: (R,), (H,), (R,)
    egress_bps: Floats
    ingress_bps: Floats
    local_host: Ints
    #: The slots of responder h are slot_of[first_slot[h] : first_slot[h + 1]]; likewise for the jobs of requester u.
    first_slot: Ints
    slot_of: Ints
    first_job: Ints
    job_of: Ints
    #: (J, few) the slots on which each job is quickest.
    quick: Ints


class Queues(NamedTuple):
    """The variable part of a search: slot a computes queue[a, : queued[a]] in turn, in reversed time."""

    #: (J,)
    accelerator: Ints
    #: (A, most), (A,)
    queue: NDArray[np.int64]
    queued: Ints
    #: (J,) the time when a job has been computed, and when its requester has sent the inputs of all jobs before it;
    #: (A,) when a slot has computed all its jobs; (R + H,) when a link has sent all inputs.
    release_s: Floats
    start_s: Floats
    load_s: Floats
    link_end_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LocalOptimum:
    """A placement and an order, which are modified in place, with the resulting times."""

    queues: Queues
    ready_s: Floats

    @property
    def estimate_s(self) -> float:
        """The makespan if no responder had to wait for the flows of another one."""
        return max(float((self.queues.load_s + self.ready_s).max()), float(self.queues.link_end_s.max()))

    def excess_s(self, target_s: float) -> float:
        """Return the total seconds by which links and slots exceed a target."""
        queues = self.queues
        over_s = np.maximum(queues.load_s + self.ready_s - target_s, 0.0).sum()
        return float(over_s + np.maximum(queues.link_end_s - target_s, 0.0).sum())

    def copy(self) -> "LocalOptimum":
        """Return an independent copy."""
        own = self.queues
        copies = Queues(
            own.accelerator.copy(), own.queue.copy(), own.queued.copy(), own.release_s.copy(), own.start_s.copy(),
            own.load_s.copy(), own.link_end_s.copy(),
        )  # fmt: skip
        return LocalOptimum(copies, self.ready_s)


class LocalSearch:
    """Improves placements of one problem."""

    def __init__(self, problem: BatchProblem) -> None:
        self._ready_s = np.array(problem.ready_s)
        bits = np.asarray(8.0 * problem.input_bytes, np.float64)
        egress_s = np.bincount(problem.requester, bits, len(problem.egress_bps)) / problem.egress_bps
        hosts, requesters = len(problem.ingress_bps), len(problem.egress_bps)
        self._instance = Instance(
            seconds=problem.seconds,
            requester=np.array(problem.requester),
            bits=bits,
            # Requesters with the most to send go first.
            turn=-egress_s[problem.requester],
            responder=np.array(problem.responder),
            egress_bps=np.array(problem.egress_bps),
            ingress_bps=np.array(problem.ingress_bps),
            local_host=np.array(problem.local_host),
            first_slot=_firsts(problem.responder, hosts),
            slot_of=np.argsort(problem.responder, kind="stable"),
            first_job=_firsts(problem.requester, requesters),
            job_of=np.argsort(problem.requester, kind="stable"),
            quick=_quickest(problem.seconds, _QUICK),
        )

    def start(self, accelerator: Ints, sequence: Ints) -> LocalOptimum:
        """Return the state for a placement (J,) whose slots compute in `sequence` (J,)."""
        from fpga_pool.core.makespan.kernels import local_search as kernels

        slot = accelerator[sequence]
        slots, links = len(self._ready_s), len(self._instance.egress_bps) + len(self._instance.ingress_bps)
        queued = np.bincount(slot, minlength=slots)
        queue = np.zeros((slots, 2 * int(queued.max()) + _SPARE), np.int64)
        by_slot = np.argsort(slot, kind="stable")
        queue[slot[by_slot], np.arange(len(slot)) - np.repeat(np.cumsum(queued) - queued, queued)] = sequence[by_slot]
        release_s, start_s = np.zeros(len(slot)), np.zeros(len(slot))
        queues = Queues(accelerator.copy(), queue, queued, release_s, start_s, np.zeros(slots), np.zeros(links))
        kernels.measure(self._instance, queues)
        return LocalOptimum(queues, self._ready_s)

    def local_search(self, optimum: LocalOptimum, target_s: float, steps: int, state: NDArray[np.uint64]) -> None:
        """Try `steps` changes towards a makespan of `target_s`."""
        from fpga_pool.core.makespan.kernels import local_search as kernels

        kernels.local_search(self._instance, optimum.queues, target_s - self._ready_s, target_s, steps, state)


def prepare_loops() -> None:
    """Compile all loops of the planners, or load them from the cache of an earlier run."""
    from fpga_pool.core.makespan.kernels import joint, loops  # noqa: F401  (those compile when they are imported)

    none, links = ints([0, 0]), floats([1.0, 1.0])
    problem = BatchProblem(
        seconds=floats(np.ones((2, 2))), input_bytes=ints([1, 1]), requester=none, egress_bps=links, responder=none,
        ingress_bps=links,
    )  # fmt: skip
    search = LocalSearch(problem)
    search.local_search(search.start(np.zeros(2, np.int64), np.arange(2)), 1.0, 1, np.ones(1, np.uint64))


def _quickest(seconds: Floats, few: int) -> Ints:
    """Return (J, few) the columns with the smallest values of each row, in any order."""
    few = min(few, seconds.shape[1])
    quick = np.empty((len(seconds), few), np.int64)
    for begin in range(0, len(seconds), _ROWS):
        block = slice(begin, begin + _ROWS)
        quick[block] = np.argpartition(seconds[block], few - 1, axis=1)[:, :few]
    return quick


def _firsts(owner: Ints, owners: int) -> Ints:
    return np.searchsorted(np.sort(owner), np.arange(owners + 1))
