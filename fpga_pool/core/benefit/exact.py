"""The most benefit that a clairvoyant scheduler gets from a trace: an integer programme, and its relaxation.

The bound per job leaves out that jobs run without a break, each on one slot, and that other functions have to be
loaded.  Here every slot takes a path through time: it is idle, loads, or runs a job from a step's begin on.  Both
together are solved; work that the bound counts must be done on such paths.  Slots of one kind on one card are a group,
and jobs alike (function, work, patience) a class, of which only counts matter: among jobs that wait equally long, the
first come can as well be the first served.

Times are rounded down to steps, so that every schedule of the simulator has its paths: where all are multiples of the
step, the DMA engines suffice and nothing is taken off a slot, the result is the optimum; else no schedule exceeds it.
Where paths need not be whole numbers, slots are shared out in parts and loads cost as much as before: a bound that is
found in seconds for minutes of one card, and within a few per cent of the optimum.
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

#: Rounding of times that are multiples of the step.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Bounds on the mean benefit of the best schedule, in vCPUs."""

    #: No schedule exceeds it.
    most_vcpus: float
    #: The best paths found reach it; 0 where none were looked for, or found in time.
    reached_vcpus: float
    #: These paths, as what each slot does.
    actions: tuple[Action, ...] = ()

    @property
    def gap(self) -> float:
        """Return by how much the best might be better than what was found, as a share of it."""
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
    """Return what the best schedule gains up to `horizon_s`, from slots that are empty at 0.

    Times are rounded down to `step_s`.  The search ends where the best found and the most possible are within `gap`, a
    share, or after `time_limit_s`; with 0 there is none, only the relaxation.  With `asked_first` no function is loaded
    before the first job that asks for it: what a start without foresight costs.
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
        reached = min(most, found.reached)  # but for rounding they are the same where the optimum is found
        if len(found.values):
            actions = tuple(_actions(network, arcs, found.values))
    if reached < (1.0 - gap) * most:  # what a search has proven is no higher than the relaxation
        most = min(most, programme.relaxed())
        reached = min(most, reached)
    return Optimum(most_vcpus=most / horizon_s, reached_vcpus=reached / horizon_s, actions=actions)


@dataclass(frozen=True, slots=True)
class _Node:
    """A slot of a group at the begin of a step; `held` is the function it holds, the port while it begins a load."""

    group: tuple[int, int]
    step: int
    held: int


@dataclass(frozen=True, slots=True)
class _Arc:
    """What some slots of a group do from one node to the next; `runs` = -1: nothing, or a load."""

    tail: _Node
    head: _Node
    runs: int = -1
    work_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Class:
    """Jobs alike."""

    function: int
    work_s: float
    #: In which step each arrives, sorted; the last in which it can start by itself, and at all, if a slot loads for it.
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
        #: How many steps after its begin a load may still be under way.
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
        """Return how often an arc is taken at most: by each slot once, but where it takes less than a step."""
        if arc.tail.step < arc.head.step:
            return self.slots[arc.tail.group]
        return len(self.jobs.function) if arc.runs < 0 else len(self.classes[arc.runs].come)

    def _runs(self, group: tuple[int, int], number: int, alike: _Class) -> Iterator[_Arc]:
        """Yield the runs of a class: whole ones, and shorter ones where jobs can be taken off and keep progress."""
        function, whole = alike.function, int(self._steps(alike.work_s))
        stops = self.pool.preemptible[function] and self.pool.progress_kept[function]
        begins = {s for first, last in zip(alike.come, alike.over, strict=True) for s in range(first, last + 1)}
        for begin in sorted(begins):
            if begin >= self.end:
                return
            for length in range(whole + 1) if stops else (whole,):
                # A run that ends early may have lasted for most of a step more than is left of it after rounding.
                most_s = alike.work_s if length == whole else min(alike.work_s, (length + 1) * self.step_s)
                most_s = min(most_s, float(self.edges_s[-1]) - begin * self.step_s)  # later work does not count
                head = _Node(group, min(self.end, begin + length), function)
                yield _Arc(_Node(group, begin, function), head, number, most_s)


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


def _programme(network: _Network) -> tuple[Programme, "Arcs"]:
    """Return the bound per job and, together with it, the paths; and which variable counts each arc of these."""
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
    """Let every slot begin empty and go on from where it is, to the end."""
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
    """Let the configuration port of a card load one slot at a time."""
    rows = _Rows()
    for variable, arc in arcs:
        if arc.tail.held == network.port:
            card, kind = arc.tail.group
            for step in range(arc.tail.step, min(network.end, arc.tail.step + network.load_steps[kind])):
                rows.add((card, step), variable, 1.0)
    programme.at_most(*rows.entries(), np.ones(len(rows.number)))


def _run_jobs_once(programme: Programme, network: _Network, arcs: Arcs) -> None:
    """Let a job start once at most, between its arrival and the end of its patience, or of a load made meanwhile.

    Per class, `done` is how many jobs have started or been given up by the end of a step: no more than have come, and
    all whose patience is over, but for those that wait for a load.
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
        # As many wait on as slots load for them at the moment at which they would give up.
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
    """Let no more work of a function be done by the end of a step than its runs at full speed do by then.

    What the DMA delays is done later.
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
        # At full speed, and all that is left in the last step that is on the path.
        last, left_s = max(0, arc.head.step - arc.tail.step - 1), arc.work_s
        for i in range(last + 1):
            done_s = left_s if i == last else min(left_s, network.step_s)
            left_s -= done_s
            rows.add((arc.tail.held, arc.tail.step + i), variable, -done_s)
    programme.exactly(*rows.entries(), np.zeros(len(rows.number)))


def _actions(network: _Network, arcs: Arcs, values: Floats) -> Iterator[Action]:
    """Yield what each slot does: the slots of a group follow its arcs, each as often as it was taken."""
    taken: dict[_Node, list[_Arc]] = defaultdict(list)
    for variable, arc in arcs:
        taken[arc.tail] += [arc] * round(values[variable])
    for leaving in taken.values():
        # The last one first: what takes no time, then jobs.
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
