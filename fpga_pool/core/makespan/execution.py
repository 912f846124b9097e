"""Start times of jobs, given where they run and when their inputs arrive."""

from dataclasses import dataclass, field, replace

import numpy as np

from fpga_pool.core.makespan.bounds import LowerBound, lower_bound
from fpga_pool.core.makespan.fluid import Segments, Transfers, no_segments
from fpga_pool.core.makespan.results import completion_bound, send_back
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints

#: Maximum number of replays in start-time order.  Only loads change start times, which settle almost immediately.
_REPLAYS = 5


def execute(
    problem: BatchProblem, accelerator: Ints, order: Ints, arrived_s: Floats, free_s: Floats | None = None
) -> Floats:
    """Return (J,) the start time of each job if every slot follows `dispatch.next_action` from `ready_s` on.

    All jobs are in the queues of their slots from the start, in `order` (J,); job j runs on `accelerator` (J,), and its
    input is complete at `arrived_s` (J,).  Free slots load from `head_start_s` before time 0 on; `free_s` (A,)
    overrides the problem's times from which each slot may load.  This is the array form of the rule: it makes the same
    decisions in one pass over the jobs of each slot.  A port performs its loads in the order they are decided.
    """
    from fpga_pool.core.makespan.kernels import loops

    start_s = np.zeros(problem.jobs)
    by_port = np.argsort(problem.port, kind="stable")
    place = np.argsort(by_port)[accelerator[order]]
    by_slot = order[np.argsort(place, kind="stable")]
    jobs = np.bincount(place)
    used = np.flatnonzero(jobs)
    slots = by_port[used]
    seconds = problem.seconds[by_slot, accelerator[by_slot]]
    loops.execute(
        np.cumsum(jobs[used]), problem.port[slots], (problem.free_s if free_s is None else free_s)[slots],
        problem.loaded[slots], problem.load_s[slots], problem.function[by_slot], np.array(arrived_s)[by_slot], seconds,
        start_s_by_slot := np.empty(len(by_slot)),
    )  # fmt: skip
    start_s[by_slot] = start_s_by_slot
    return start_s


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A plan whose bound is not known yet: accelerators (J,), start times (J,), transfers, and makespan."""

    accelerator: Ints
    start_s: Floats
    segments: Segments
    makespan_s: float
    #: Transfers of the results, and the time when all are back.
    results: Segments = field(default_factory=no_segments)
    completion_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "completion_s", max(self.completion_s, self.makespan_s))

    def back_s(self, problem: BatchProblem) -> Floats:
        """Return (J,) the time when each job has ended and its result is back."""
        back_s: Floats = self.start_s + problem.seconds[np.arange(problem.jobs), self.accelerator]
        np.maximum.at(back_s, self.results.flow, self.results.end_s)
        return back_s


def schedule(problem: BatchProblem, accelerator: Ints, order: Ints, transfers: Transfers) -> Schedule:
    """Return the schedule for a given placement (J,), queue order (J,) and transfers."""
    start_s = execute(problem, accelerator, order, transfers.arrived_s)
    if problem.load_s.any():
        start_s = _settle(problem, accelerator, order, transfers.arrived_s, start_s)
    end_s = start_s + problem.seconds[np.arange(problem.jobs), accelerator]
    found = Schedule(accelerator, start_s, transfers.segments, float(end_s.max(initial=0.0)))
    return with_results(problem, found)


def with_results(problem: BatchProblem, found: Schedule) -> Schedule:
    """Return the schedule with the transfers of its results, which are sent in the order in which jobs end."""
    if not problem.output_bytes.any():
        return found
    end_s = found.start_s + problem.seconds[np.arange(problem.jobs), found.accelerator]
    results, completion_s = send_back(problem, found.accelerator, end_s)
    return replace(found, results=results, completion_s=max(completion_s, found.makespan_s))


def as_plan(problem: BatchProblem, found: Schedule, bound: LowerBound, policy: str) -> BatchPlan:
    """Return the schedule in the plan format, with the bound."""
    pieces, results = found.segments, found.results
    completion_s = bound.seconds if not problem.output_bytes.any() else completion_bound(problem, bound)
    return BatchPlan(
        accelerator=found.accelerator,
        start_s=found.start_s,
        segment_job=pieces.flow,
        segment_begin_s=pieces.begin_s,
        segment_end_s=pieces.end_s,
        segment_bps=pieces.bps,
        makespan_s=found.makespan_s,
        # If the plan is optimal, the two may differ by rounding.
        lower_bound_s=min(bound.seconds, found.makespan_s),
        bound_prices=bound.prices,
        result_job=results.flow,
        result_begin_s=results.begin_s,
        result_end_s=results.end_s,
        result_bps=results.bps,
        completion_s=found.completion_s,
        completion_bound_s=min(completion_s, found.completion_s),
        policy=policy,
        generation=problem.generation,
    )


def complete_plan(
    problem: BatchProblem,
    accelerator: Ints,
    order: Ints,
    transfers: Transfers,
    policy: str,
) -> BatchPlan:
    """Return the plan for a given placement (J,), queue order (J,) and transfers."""
    found = schedule(problem, accelerator, order, transfers)
    return as_plan(problem, found, lower_bound(problem, found.makespan_s), policy)


def _settle(problem: BatchProblem, accelerator: Ints, order: Ints, arrived_s: Floats, start_s: Floats) -> Floats:
    """Replay a plan in the order of its start times, in which a pool queues it, until the start times are stable.

    Without loads this changes nothing.  With loads it changes which functions are loaded ahead of time.
    """
    for _ in range(_REPLAYS):
        order = order[np.argsort(start_s[order], kind="stable")]
        replayed_s = execute(problem, accelerator, order, arrived_s)
        if np.array_equal(replayed_s, start_s):
            break
        start_s = replayed_s
    return start_s
