"""The most benefit that a clairvoyant scheduler gets from a small trace: an integer programme.

The bound per job leaves out that jobs run without a break, each on one slot, and that other functions have to be
loaded.  Here every slot takes a path through time: it is idle, loads, or runs a job from a step's begin on.  Both
together are solved; work that the bound counts must be done on such paths.

Times are rounded down to steps, so that every schedule of the simulator has its paths: where all are multiples of the
step, the DMA engines suffice and nothing is taken off a slot, the result is the optimum; else no schedule exceeds it.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.bound import Windows, bucket_edges, job_programme
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.benefit.programme import Programme
from fpga_pool.core.types import Floats, Ints

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
    programme, job = job_programme(pool, jobs, bucket_edges(jobs, horizon_s))
    network = _Network(pool, jobs, horizon_s, step_s)
    found = list(network.arcs())
    arcs = dict(zip(programme.add_whole(np.array([arc.most for arc in found], float)).tolist(), found, strict=True))
    _keep_paths(programme, network, arcs)
    _take_turns_at_ports(programme, network, arcs)
    _run_jobs_once(programme, job, arcs)
    most = programme.solve(time_limit_s)
    return None if most is None else most / horizon_s


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


class _Rows:
    """Rows of a programme, each under a key, written down entry by entry."""

    def __init__(self) -> None:
        self.number: dict[Hashable, int] = {}
        self._entries: list[tuple[int, int, float]] = []

    def add(self, key: Hashable, variable: int, value: float) -> None:
        """Add value * variable to a row."""
        self._entries.append((self.number.setdefault(key, len(self.number)), variable, value))

    def entries(self) -> tuple[Ints, Ints, Floats]:
        """Return row, variable and value of all entries."""
        row, variable, value = zip(*self._entries, strict=True) if self._entries else ((), (), ())
        return np.array(row, np.int64), np.array(variable, np.int64), np.array(value, float)


def _keep_paths(programme: Programme, network: _Network, arcs: Mapping[int, _Arc]) -> None:
    """Let every slot begin empty and go on from where it is, to the end."""
    rows = _Rows()
    for variable, arc in arcs.items():
        for node, sign in ((arc.tail, 1.0), (arc.head, -1.0)):
            if node.step < network.end:
                rows.add(node, variable, sign)
    wanted = np.zeros(len(rows.number))
    for group, count in network.slots.items():
        wanted[rows.number[_Node(group, 0, network.empty)]] = count
    programme.exactly(*rows.entries(), wanted)


def _take_turns_at_ports(programme: Programme, network: _Network, arcs: Mapping[int, _Arc]) -> None:
    """Let the configuration port of a card load one slot at a time."""
    rows = _Rows()
    for variable, arc in arcs.items():
        if arc.tail.held == network.port:
            card, kind = arc.tail.group
            for step in range(arc.tail.step, arc.tail.step + network.load_steps[kind]):
                rows.add((card, step), variable, 1.0)
    programme.at_most(*rows.entries(), np.ones(len(rows.number)))


def _run_jobs_once(programme: Programme, job: Ints, arcs: Mapping[int, _Arc]) -> None:
    """Let a job have one run at most, and do no more work, of which `job` says whose it is, than fits into it."""
    done, runs = _Rows(), _Rows()
    for variable, which in enumerate(job.tolist()):
        done.add(which, variable, 1.0)
    for variable, arc in arcs.items():
        if arc.job >= 0:
            done.add(arc.job, variable, -arc.work_s)
            runs.add(arc.job, variable, 1.0)
    programme.at_most(*done.entries(), np.zeros(len(done.number)))
    programme.at_most(*runs.entries(), np.ones(len(runs.number)))
