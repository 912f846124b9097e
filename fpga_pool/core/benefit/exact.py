"""The most benefit that a clairvoyant scheduler gets from a small trace: an integer programme.

The bound per job leaves out that jobs run without a break, each on one slot, and that other functions have to be
loaded.  Here every slot takes a path through time: it is idle, loads, or runs a job from a step's begin on.  Both
together are solved; work that the bound counts must be done on such paths.

Times are rounded down to steps, so that every schedule of the simulator has its paths: where all are multiples of the
step, the DMA engines suffice and nothing is taken off a slot, the result is the optimum; else no schedule exceeds it.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pulp

from fpga_pool.core.benefit.bound import Windows, bucket_edges, job_programme
from fpga_pool.core.benefit.pool import OnlinePool

#: Rounding of times that are multiples of the step.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class _Node:
    """A slot of a group at the begin of a step; `held` is the function it holds, the port while it begins a load."""

    group: tuple[int, int]
    step: int
    held: int


@dataclass(frozen=True, slots=True)
class _Arc:
    """What some slots of a group do from one node to the next; `job` = -1: nothing, or a load."""

    tail: _Node
    head: _Node
    most: int
    job: int = -1
    work_s: float = 0.0


def optimum(
    pool: OnlinePool, jobs: Windows, horizon_s: float, *, step_s: float, time_limit_s: float | None = None
) -> float | None:
    """Return the mean benefit up to `horizon_s`, in vCPUs, of the best schedule; None if that takes too long."""
    if not 0 < step_s < np.inf:
        raise ValueError(f"step_s: expected seconds above 0, got {step_s!r}")
    if horizon_s <= 0 or not len(jobs.function):
        return 0.0
    model = pulp.LpProblem("benefit", pulp.LpMaximize)
    done_s = _add_bound(model, pool, jobs, horizon_s)
    network = _Network(pool, jobs, horizon_s, step_s)
    arcs = enumerate(network.arcs())
    flow = {arc: model.add_variable(f"x{i}", 0, arc.most, cat=pulp.LpInteger) for i, arc in arcs}
    _keep_paths(model, network, flow)
    _take_turns_at_ports(model, network, flow)
    _run_jobs_once(model, flow, done_s)
    return float(pulp.value(model.objective)) / horizon_s if _solve(model, time_limit_s) else None


def _solve(model: pulp.LpProblem, time_limit_s: float | None) -> bool:
    """Solve to the optimum; return whether that was found in time."""
    with warnings.catch_warnings():
        # PuLP 3 brings CBC with it; 4 will want it installed apart.
        warnings.filterwarnings("ignore", "PULP_CBC_CMD is deprecated", DeprecationWarning)
        status = model.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=time_limit_s))
    return bool(status == pulp.LpStatusOptimal and model.sol_status == pulp.LpSolutionOptimal)


def _add_bound(
    model: pulp.LpProblem, pool: OnlinePool, jobs: Windows, horizon_s: float
) -> dict[int, list[pulp.LpVariable]]:
    """Write down the bound per job; return the variables of the work done for each job."""
    programme, job = job_programme(pool, jobs, bucket_edges(jobs, horizon_s))
    work_s = [model.add_variable(f"y{i}", 0, most_s) for i, most_s in enumerate(programme.most.tolist())]
    model += pulp.lpDot(programme.gain.tolist(), work_s)
    matrix = programme.matrix
    for row, limit in enumerate(programme.limits.tolist()):
        inside = slice(matrix.indptr[row], matrix.indptr[row + 1])
        columns, values = matrix.indices[inside].tolist(), matrix.data[inside].tolist()
        if columns:
            model += pulp.lpSum(value * work_s[i] for i, value in zip(columns, values, strict=True)) <= limit
    done_s = defaultdict(list)
    for i, which in enumerate(job.tolist()):
        done_s[which].append(work_s[i])
    return done_s


class _Network:
    """The paths that slots can take; those of one kind on one card are a group."""

    def __init__(self, pool: OnlinePool, jobs: Windows, horizon_s: float, step_s: float) -> None:
        self.pool, self._jobs, self._horizon_s, self._step_s = pool, jobs, horizon_s, step_s
        self.end = self._steps(horizon_s)
        self.load_steps = [self._steps(load_s) for load_s in pool.load_s.tolist()]
        places = zip(pool.slot_card.tolist(), pool.slot_kind.tolist(), strict=True)
        self.slots: dict[tuple[int, int], int] = defaultdict(int)
        for place in places:
            self.slots[place] += 1
        self.empty, self.port = len(pool.functions), len(pool.functions) + 1

    def arcs(self) -> Iterator[_Arc]:
        """Yield all arcs of all groups."""
        for group, count in self.slots.items():
            fits = np.flatnonzero(self.pool.fits[group[1]]).tolist()
            for step in range(self.end):
                port = _Node(group, step, self.port)
                for held in (*fits, self.empty):
                    here = _Node(group, step, held)
                    yield _Arc(here, _Node(group, step + 1, held), count)
                    yield _Arc(here, port, count)
                loaded = min(self.end, step + self.load_steps[group[1]])
                for held in fits:
                    yield _Arc(port, _Node(group, loaded, held), count)
            for job, function in enumerate(self._jobs.function.tolist()):
                if function in fits:
                    yield from self._runs(group, job, function)

    def _runs(self, group: tuple[int, int], job: int, function: int) -> Iterator[_Arc]:
        """Yield the runs of a job: whole ones, and shorter ones where it can be taken off and keeps its progress."""
        pool, jobs, step_s = self.pool, self._jobs, self._step_s
        work_s = float(jobs.work_s[job])
        steps = self._steps(work_s)
        lengths = range(steps + 1) if pool.preemptible[function] and pool.progress_kept[function] else (steps,)
        for begin in range(self._steps(jobs.from_s[job]), min(self.end, self._steps(jobs.to_s[job] - work_s) + 1)):
            for length in lengths:
                # A run that ends early may have lasted for most of a step more than is left of it after rounding.
                most_s = work_s if length == steps else min(work_s, (length + 1) * step_s)
                most_s = min(most_s, self._horizon_s - begin * step_s)
                head = _Node(group, min(self.end, begin + length), function)
                yield _Arc(_Node(group, begin, function), head, 1, job, most_s)

    def _steps(self, length_s: float) -> int:
        return int(length_s / self._step_s + _ROUNDING)


def _keep_paths(model: pulp.LpProblem, network: _Network, flow: dict[_Arc, pulp.LpVariable]) -> None:
    """Let every slot begin empty and go on from where it is, to the end."""
    balance = defaultdict(list)
    for arc, count in flow.items():
        balance[arc.tail].append(count)
        balance[arc.head].append(-count)
    for node, terms in balance.items():
        if node.step < network.end:
            begins = network.slots[node.group] if (node.step, node.held) == (0, network.empty) else 0
            model += pulp.lpSum(terms) == begins


def _take_turns_at_ports(model: pulp.LpProblem, network: _Network, flow: dict[_Arc, pulp.LpVariable]) -> None:
    """Let the configuration port of a card load one slot at a time."""
    loading = defaultdict(list)
    for arc, count in flow.items():
        if arc.tail.held == network.port:
            card, kind = arc.tail.group
            for step in range(arc.tail.step, arc.tail.step + network.load_steps[kind]):
                loading[card, step].append(count)
    for terms in loading.values():
        model += pulp.lpSum(terms) <= 1


def _run_jobs_once(
    model: pulp.LpProblem, flow: dict[_Arc, pulp.LpVariable], done_s: dict[int, list[pulp.LpVariable]]
) -> None:
    """Let a job have one run at most, and do no more than fits into it."""
    runs = defaultdict(list)
    for arc, count in flow.items():
        if arc.job >= 0:
            runs[arc.job].append((count, arc.work_s))
    for job, terms in done_s.items():
        model += pulp.lpSum(terms) <= pulp.lpSum(count * work_s for count, work_s in runs[job])
        model += pulp.lpSum(count for count, _ in runs[job]) <= 1
