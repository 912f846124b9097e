"""The maximum benefit of a clairvoyant scheduler on a trace: an integer program, and its relaxation.

The bound per job ignores that jobs run without interruption, each on one slot, and that other functions have to be
loaded.  Here every slot also takes a path through time: from the begin of a step on, it is idle, loads, or runs a job.
Both models are solved together; the work that the bound counts must be done on such paths.  Slots of one kind on one
card form a group, and equal jobs (function, work, patience) form a class, of which only counts matter: among jobs of
equal patience, serving first come first loses nothing.

Times are rounded down to steps, so that every schedule of the simulator has corresponding paths.  If all times are
multiples of the step, the DMA engines suffice and no job is evicted, the result is the optimum; otherwise it is an
upper bound.  In the relaxation the counts need not be integers: slots are divided into fractions, and loads cost as
much as before.  This bound takes seconds for minutes of one card, and is within a few per cent of the optimum.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fpga_pool.core.benefit.bound import Action, JobProgramme, Programme, Windows, job_programme, upper_bound
from fpga_pool.core.benefit.pool import Load, OnlinePool, Start
from fpga_pool.core.types import Floats, Ints

#: Tolerance for rounding of times that are multiples of the step.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Bounds on the mean benefit of the best schedule, in vCPUs."""

    #: Upper bound for every schedule.
    most_vcpus: float
    #: Benefit of the best paths found; 0 if there was no search, or none were found in time.
    reached_vcpus: float
    #: These paths, as the actions of the slots.
    actions: tuple[Action, ...] = ()

    @property
    def gap(self) -> float:
        """Return the distance between the upper bound and the benefit found, as a share of the bound."""
        return max(0.0, 1.0 - self.reached_vcpus / self.most_vcpus) if self.most_vcpus > 0 else 0.0


def optimum(
    pool: OnlinePool,
    jobs: Windows,
    horizon_s: float,
    *,
    step_s: float,
    gap: float = 1e-7,
    time_limit_s: float | None = None,
    asked_first: bool = False,
) -> Optimum:
    """Return bounds on the benefit of the best schedule up to `horizon_s`, with all slots empty at time 0.

    Times are rounded down to `step_s`.  The search ends when the best solution and the bound are within the relative
    `gap`, or after `time_limit_s`; a limit of 0 means no search, only the relaxation.  With `asked_first` no function
    is loaded before its first job has arrived, which shows the cost of a start without foresight.
    """
    if not 0 < step_s < np.inf:
        raise ValueError(f"step_s: expected seconds above 0, got {step_s!r}")
    if horizon_s <= 0 or not len(jobs.function):
        return Optimum(most_vcpus=0.0, reached_vcpus=0.0)
    network = _Network(pool, jobs, horizon_s, step_s, asked_first)
    programme, arcs = _programme(network)
    most, reached, actions = horizon_s * upper_bound(pool, jobs, horizon_s), 0.0, tuple[Action, ...]()
    if time_limit_s != 0:
        found = programme.search(gap, time_limit_s)
        most = min(most, found.most)
        reached = min(most, found.reached)  # equal up to rounding if the optimum was found
        if len(found.values):
            actions = tuple(_actions(network, arcs, found.values))
    if reached < (1.0 - gap) * most:  # not proven optimal: the relaxation may be tighter
        most = min(most, programme.relaxed())
        reached = min(most, reached)
    return Optimum(most_vcpus=most / horizon_s, reached_vcpus=reached / horizon_s, actions=actions)


@dataclass(frozen=True, slots=True)
class _Node:
    """A slot of a group at the begin of a step; `held` is its function, or the port while it begins a load."""

    group: tuple[int, int]
    step: int
    held: int


@dataclass(frozen=True, slots=True)
class _Arc:
    """An action of slots of a group between two nodes; `runs` is the class of the job, -1 = idle or load."""

    tail: _Node
    head: _Node
    runs: int = -1
    work_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Class:
    """Jobs of equal function, work and patience."""

    function: int
    work_s: float
    #: Steps, sorted: arrival, the last step in which a job can start, and the last one if a slot is loading for it.
    come: Ints
    give_up: Ints
    over: Ints


class _Network:
    """The paths that slots can take, and the jobs they can run."""

    def __init__(
        self, pool: OnlinePool, jobs: Windows, horizon_s: float, step_s: float, asked_first: bool = False
    ) -> None:
        self.pool, self.jobs, self.step_s = pool, jobs, step_s
        self.end = math.ceil(horizon_s / step_s - _ROUNDING)
        self.edges_s = np.minimum(step_s * np.arange(self.end + 1), horizon_s)
        self.load_steps = self._steps(pool.load_s).tolist()
        #: Number of steps after its begin in which a load may still be in progress.
        self.late_steps = math.ceil(float(pool.load_s.max()) / step_s - _ROUNDING)
        self.slots: dict[tuple[int, int], int] = defaultdict(int)
        for place in zip(pool.slot_card.tolist(), pool.slot_kind.tolist(), strict=True):
            self.slots[place] += 1
        self.functions: list[int] = np.unique(jobs.function).tolist()
        self.empty, self.port = len(pool.functions), len(pool.functions) + 1
        self.classes = list(self._classes())
        #: By function: the first step in which it may be loaded.
        self.asked = {f: min(int(c.come[0]) for c in self.classes if c.function == f) for f in self.functions}
        if not asked_first:
            self.asked = dict.fromkeys(self.functions, 0)

    def _classes(self) -> Iterator[_Class]:
        jobs, longest_s = self.jobs, float(self.pool.load_s.max())
        patience_s = np.round(jobs.give_up_s - jobs.from_s, 9)
        keys = np.stack([jobs.function.astype(float), jobs.work_s, patience_s], axis=1)
        alike, member = np.unique(keys, axis=0, return_inverse=True)
        for number, (function, work_s, _) in enumerate(alike.tolist()):
            mine = member.ravel() == number
            give_up_s = np.sort(jobs.give_up_s[mine])
            come, give_up, over = map(self._steps, (np.sort(jobs.from_s[mine]), give_up_s, give_up_s + longest_s))
            yield _Class(int(function), work_s, come, give_up, over)

    def _steps(self, length_s: ArrayLike) -> Ints:
        return (np.asarray(length_s) / self.step_s + _ROUNDING).astype(np.int64)

    def arcs(self) -> Iterator[_Arc]:
        """Yield all arcs of all groups."""
        for group in self.slots:
            fits = [f for f in self.functions if self.pool.fits[group[1], f]]
            for step in range(self.end):
                port = _Node(group, step, self.port)
                for held in (*fits, self.empty):
                    here = _Node(group, step, held)
                    yield _Arc(here, _Node(group, step + 1, held))
                    yield _Arc(here, port)
                loaded = min(self.end, step + self.load_steps[group[1]])
                for held in fits:
                    if step >= self.asked[held]:
                        yield _Arc(port, _Node(group, loaded, held))
            for number, alike in enumerate(self.classes):
                if alike.function in fits:
                    yield from self._runs(group, number, alike)

    def most(self, arc: _Arc) -> int:
        """Return how often an arc is taken at most: once per slot, or once per job if it takes less than a step."""
        if arc.tail.step < arc.head.step:
            return self.slots[arc.tail.group]
        return len(self.jobs.function) if arc.runs < 0 else len(self.classes[arc.runs].come)

    def _runs(self, group: tuple[int, int], number: int, alike: _Class) -> Iterator[_Arc]:
        """Yield the runs of a class: complete ones, and shorter ones if its jobs can be evicted and keep progress."""
        function, whole = alike.function, int(self._steps(alike.work_s))
        stops = self.pool.preemptible[function] and self.pool.progress_kept[function]
        begins = {s for first, last in zip(alike.come, alike.over, strict=True) for s in range(first, last + 1)}
        for begin in sorted(begins):
            if begin >= self.end:
                return
            for length in range(whole + 1) if stops else (whole,):
                # Rounding may have shortened a run that ends early by almost a step.
                most_s = alike.work_s if length == whole else min(alike.work_s, (length + 1) * self.step_s)
                most_s = min(most_s, float(self.edges_s[-1]) - begin * self.step_s)  # later work does not count
                head = _Node(group, min(self.end, begin + length), function)
                yield _Arc(_Node(group, begin, function), head, number, most_s)


class _Rows:
    """Rows of a program, each identified by a key and built entry by entry."""

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


def _programme(network: _Network) -> tuple[Programme, "Arcs"]:
    """Return the program of the bound per job with the paths added, and the variable that counts each arc."""
    work = job_programme(network.pool, network.jobs, network.edges_s)
    programme = work.programme
    found = list(network.arcs())
    most = np.array([network.most(arc) for arc in found], float)
    arcs = list(zip(programme.add(most, whole=True).tolist(), found, strict=True))
    _keep_paths(programme, network, arcs)
    _take_turns_at_ports(programme, network, arcs)
    _run_jobs_once(programme, network, arcs)
    _do_work_on_paths(work, network, arcs)
    return programme, arcs


Arcs = Sequence[tuple[int, _Arc]]


def _keep_paths(programme: Programme, network: _Network, arcs: Arcs) -> None:
    """Constrain every slot to begin empty and to follow a connected path to the end."""
    rows = _Rows()
    for variable, arc in arcs:
        for node, sign in ((arc.tail, 1.0), (arc.head, -1.0)):
            if node.step < network.end:
                rows.add(node, variable, sign)
    wanted = np.zeros(len(rows.number))
    for group, count in network.slots.items():
        wanted[rows.number[_Node(group, 0, network.empty)]] = count
    programme.exactly(*rows.entries(), wanted)


def _take_turns_at_ports(programme: Programme, network: _Network, arcs: Arcs) -> None:
    """Constrain the configuration port of a card to load one slot at a time."""
    rows = _Rows()
    for variable, arc in arcs:
        if arc.tail.held == network.port:
            card, kind = arc.tail.group
            for step in range(arc.tail.step, min(network.end, arc.tail.step + network.load_steps[kind])):
                rows.add((card, step), variable, 1.0)
    programme.at_most(*rows.entries(), np.ones(len(rows.number)))


def _run_jobs_once(programme: Programme, network: _Network, arcs: Arcs) -> None:
    """Constrain each job to start once at most, between its arrival and the end of its patience or of a pending load.

    Per class, `done` is the number of jobs that have started or given up by the end of a step: at most the jobs that
    have arrived, and at least those whose patience has ended, except for jobs that wait for a load.
    """
    end, steps = network.end, np.arange(network.end)
    grows, over, late = _Rows(), _Rows(), _Rows()
    floors: list[Floats] = []
    for number, alike in enumerate(network.classes):
        come, give_up = (np.searchsorted(at, steps, side="right").astype(float) for at in (alike.come, alike.give_up))
        done = programme.add(come).tolist()
        floors.append(-give_up)
        for step in range(end):
            over.add((number, step), done[step], -1.0)
            grows.add((number, step), done[step], -1.0)
            if step:
                grows.add((number, step), done[step - 1], 1.0)
        # At most as many jobs wait longer as slots are loading for them when they would give up.
        at, count = np.unique(alike.give_up[alike.give_up < end], return_counts=True)
        for step, waits in zip(at.tolist(), programme.add(count.astype(float)).tolist(), strict=True):
            late.add((alike.function, step), waits, 1.0)
            for waiting in range(step, min(end, int(alike.over[alike.give_up == step].max()))):
                over.add((number, waiting), waits, -1.0)
    for variable, arc in arcs:
        if arc.runs >= 0:
            grows.add((arc.runs, arc.tail.step), variable, 1.0)
        elif arc.tail.held == network.port:
            for step in range(arc.tail.step, arc.tail.step + network.late_steps + 1):
                if (arc.head.held, step) in late.number:
                    late.add((arc.head.held, step), variable, -1.0)
    programme.at_most(*grows.entries(), np.zeros(len(grows.number)))
    programme.at_most(*over.entries(), np.concatenate(floors))
    programme.at_most(*late.entries(), np.zeros(len(late.number)))


def _do_work_on_paths(work: JobProgramme, network: _Network, arcs: Arcs) -> None:
    """Limit the work of a function by the end of a step to what its runs at full speed have done by then.

    Work that the DMA delays is done later.
    """
    rows, end, programme = _Rows(), network.end, work.programme
    for variable, place in enumerate(zip(work.function.tolist(), work.bucket.tolist(), strict=True)):
        rows.add(place, variable, 1.0)
    for function in network.functions:
        delayed = programme.add(np.full(end, np.inf)).tolist()
        for step in range(end):
            rows.add((function, step), delayed[step], 1.0)
            if step:
                rows.add((function, step), delayed[step - 1], -1.0)
    for variable, arc in arcs:
        if arc.runs < 0:
            continue
        # Full speed in each step; the last step of the path gets all remaining work.
        last, left_s = max(0, arc.head.step - arc.tail.step - 1), arc.work_s
        for i in range(last + 1):
            done_s = left_s if i == last else min(left_s, network.step_s)
            left_s -= done_s
            rows.add((arc.tail.held, arc.tail.step + i), variable, -done_s)
    programme.exactly(*rows.entries(), np.zeros(len(rows.number)))


def _actions(network: _Network, arcs: Arcs, values: Floats) -> Iterator[Action]:
    """Yield the actions of each slot: the slots of a group follow its arcs, each as often as it was taken."""
    taken: dict[_Node, list[_Arc]] = defaultdict(list)
    for variable, arc in arcs:
        taken[arc.tail] += [arc] * round(values[variable])
    for leaving in taken.values():
        # Arcs are popped from the end: those that take no time come first, then jobs.
        leaving.sort(key=lambda arc: (arc.head.step == arc.tail.step, arc.runs >= 0))
    pool = network.pool
    for slot, group in enumerate(zip(pool.slot_card.tolist(), pool.slot_kind.tolist(), strict=True)):
        node = _Node(group, 0, network.empty)
        while node.step < network.end and taken[node]:
            arc = taken[node].pop()
            begin_s = arc.tail.step * network.step_s
            if arc.runs >= 0:
                yield Action(begin_s, Start(slot, arc.tail.held))
            elif arc.tail.held == network.port:
                yield Action(begin_s, Load(slot, arc.head.held))
            node = arc.head
