"""The search of `lattice_plus`: first for weights of classes, then on the last tasks of a few enclosures at a time."""

from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.lattice.kernels import search
from fpga_pool.core.lattice.kernels.events import ANY, ARC, MOST_FPGAS, NOWHERE, Instance, Plan, Room
from fpga_pool.core.lattice.kernels.search import Queues, Search
from fpga_pool.core.lattice.kernels.serial import settle
from fpga_pool.core.lattice.listing import Placed, thrifty_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.types import Floats, Ints

#: Pairs of `Budget` that placing a task costs: a unit of effort takes about a millisecond with compiled loops.
_PAIRS_PER_TASK = 250
#: Minimum number of tasks placed between two checks of the budget.
_CHUNK = 5_000
#: Initial weights of a class per logarithm of its width, for hill climbs.
_WIDTH_POWERS = (1.0, 0.0, 0.5, 1.5, 2.0, 3.0, 4.0, 20.0)
#: Climbs that are started, how many of them are continued, and the shares of the remaining budget for both.
_CLIMBS, _FINALISTS, _BEGINNING, _GOING_ON = 6, 2, 0.3, 0.35
#: Number of tasks above which weights are first found with a sample; the sample's tasks and enclosures, its share of
#: the remaining budget, and its number of climbs.
_MANY, _SAMPLE_TASKS, _SAMPLE_RINGS, _SAMPLING, _SAMPLE_CLIMBS = 20_000, 4_000, 4, 0.5, 3
#: Enclosures and (on average) tasks that are rescheduled together, and the number of tries.
_RINGS, _TASKS, _TRIES = 4, 60, 30
#: Scheduling methods: see `improve`.
_EVENTS, _IN_TURN, _BOTH = 1, 2, 3
#: Shapes to start with: those with the fewest FPGA-seconds that take at most this share of the bound.
_TIME_SHARES = (1.0, 0.5, 0.25)
#: Share of the remaining budget for local search from the best start of each set of shapes.
_SHAPING = 0.3
_SAME = 1e-12
#: Number of tasks up to which serial scheduling is also tried: it has to check each enclosure for each task.
_FEW = 400


@dataclass(slots=True, eq=False)
class _Candidate:
    """A schedule, its end, and the weights that led to it."""

    end_s: float
    weights: Floats
    begin_s: Floats
    ring: Ints
    bits: Ints
    shape: Ints


class TaskSearch:
    """Searches for a shorter schedule than a given one."""

    def __init__(self, problem: TaskProblem, start: Placed, bound_s: float, budget: Budget, seed: int) -> None:
        problem, start, self._order = sorted_by_class(problem, start)
        self._problem, self._bound_s, self._budget = problem, bound_s, budget
        self._loads = bool(problem.load_s > 0 and (problem.function >= 0).any())
        self._backwards = bool(problem.arrival_s.any()) and not self._loads
        self._forwards_instance = instance_of(problem)
        self._instance = reversed_in_time(self._forwards_instance) if self._backwards else self._forwards_instance
        self._search = _search_for(self._instance, start.shape, seed)
        self._best = self._from_placed(start)

    @staticmethod
    def supports(problem: TaskProblem) -> bool:
        """Return whether all enclosures are small enough for the loops."""
        return bool(problem.enclosure_fpgas.max(initial=0) <= MOST_FPGAS)

    def run(self) -> Placed:
        """Return the shortest schedule that was found."""
        if not self._loads:
            self._climb()
        self._improve(self._best, self._budget)
        return self._to_placed(self._best)

    # Weights of classes -------------------------------------------------------------------------------------------

    def _climb(self) -> None:
        """Find weights by hill climbs from several starts, of which the best continue."""
        if self._problem.tasks > _MANY and self._problem.rigid:
            self._climb_on_sample()
            return
        starts = self._starts()
        if not self._problem.rigid:
            self._improve_each_shape(starts)
        part = self._budget.part(_BEGINNING)
        for number in range(_CLIMBS):
            candidate = starts[number % len(starts)]
            self._reweigh(candidate, part.part(1 / (_CLIMBS - number)))
        starts.sort(key=lambda candidate: candidate.end_s)
        part = self._budget.part(_GOING_ON)
        for number in range(_FINALISTS):
            self._reweigh(starts[number % len(starts)], part.part(1 / (_FINALISTS - number)))

    def _starts(self) -> list[_Candidate]:
        """Return the schedules of simple weights, the shortest first."""
        found = []
        for shape in self._shapes():
            self._search.shape[:] = shape
            queues = self._queues()
            for weights in self._slopes():
                found.append(self._scheduled_by(queues, weights))
                if self._done() or not self._budget.allows():
                    break
        return sorted(found, key=lambda candidate: candidate.end_s)

    def _slopes(self) -> list[Floats]:
        """Return simple weights: powers of the width, times the length."""
        logs = np.log(self._instance.width)
        return [np.stack((power * logs, np.ones(len(logs)))) for power in _WIDTH_POWERS]

    def _shapes(self) -> list[Ints]:
        """Return the sets of shapes (T,) to start with."""
        if self._problem.rigid:
            return [self._best.shape]
        return [self._best.shape, *(thrifty_shapes(self._problem, share * self._bound_s) for share in _TIME_SHARES)]

    def _climb_on_sample(self) -> None:
        """Find weights with a sample of tasks and enclosures, then improve them with all."""
        rings = len(self._instance.size)
        stride = max(1, min(self._problem.tasks // _SAMPLE_TASKS, rings // _SAMPLE_RINGS))
        queues, some = self._queues(stride), max(1, round(rings / stride))
        self._mix_rings()
        climbs = [(self._by_weights(queues, some, weights), weights) for weights in self._slopes()]
        climbs = sorted(climbs, key=lambda climb: climb[0])[:_SAMPLE_CLIMBS]
        part = self._budget.part(_SAMPLING)
        for number, (end_s, weights) in enumerate(climbs):
            mine = part.part(1 / (len(climbs) - number))
            while mine.allows():
                end_s = self._reweighed(queues, some, weights, end_s, 0.0, mine)
        queues = self._queues()
        found = []
        for _, weights in climbs:
            found.append(self._scheduled_by(queues, weights))
            if self._done() or not self._budget.allows():
                return
        self._reweigh(min(found, key=lambda candidate: candidate.end_s), self._budget.part(_GOING_ON))

    def _mix_rings(self) -> None:
        """Shuffle the enclosures, so that the first ones are a sample of all kinds."""
        rings = self._search.rings
        rings[:] = np.random.default_rng(int(self._search.random[0])).permutation(len(rings))

    def _queues(self, stride: int = 1) -> Queues:
        """Return every `stride`-th task by class, longest first."""
        instance, shape = self._instance, self._search.shape
        length_s = instance.seconds[shape] + instance.tail_s
        of_class = instance.shape_class[shape]
        tasks = np.lexsort((-length_s, of_class))[stride // 2 :: stride]
        begin = np.searchsorted(of_class[tasks], np.arange(len(instance.width) + 1))
        return Queues(begin.astype(np.int64), tasks, np.log(np.maximum(length_s[tasks], 1e-300)))

    def _by_weights(self, queues: Queues, rings: int, weights: Floats) -> float:
        """Schedule by weights on the first `rings` enclosures; return the end."""
        end_s = search.by_weights(self._search, queues, rings, weights, True, np.inf)
        self._budget.spend(_PAIRS_PER_TASK * len(queues.tasks))
        return float(end_s)

    def _scheduled_by(self, queues: Queues, weights: Floats) -> _Candidate:
        """Return the schedule by weights on all enclosures."""
        end_s = self._by_weights(queues, len(self._instance.size), weights)
        search.take_trial(self._search)
        return self._candidate(end_s, weights)

    def _reweigh(self, candidate: _Candidate, budget: Budget) -> None:
        """Improve the weights of a candidate until the budget is spent."""
        self._put(candidate)
        queues, rings = self._queues(), len(self._instance.size)
        while budget.allows() and not self._done():
            end_s = self._reweighed(queues, rings, candidate.weights, candidate.end_s, self._bound_s, budget)
            if end_s < candidate.end_s:
                self._fill(candidate, end_s)

    def _reweighed(
        self, queues: Queues, rings: int, weights: Floats, end_s: float, bound_s: float, budget: Budget
    ) -> float:
        """Run one chunk of weight changes; return the best end."""
        work = max(_CHUNK, len(queues.tasks))
        end_s = search.reweigh(self._search, queues, rings, weights, end_s, bound_s, work)
        budget.spend(_PAIRS_PER_TASK * max(int(self._search.counts[0]), 1))
        return float(end_s)

    # Local search ----------------------------------------------------------------------------------------------------

    def _improve(self, candidate: _Candidate, budget: Budget) -> None:
        """Improve a candidate by rescheduling the last tasks of a few enclosures until the budget is spent."""
        self._put(candidate)
        search.link(self._search)
        manners = _IN_TURN if self._loads else _BOTH if self._problem.tasks <= _FEW else _EVENTS
        while budget.allows() and not self._done():
            end_s = search.improve(
                self._search, self._bound_s, _CHUNK, _TRIES, _RINGS, _TASKS, manners, not self._problem.rigid
            )
            budget.spend(_PAIRS_PER_TASK * max(int(self._search.counts[0]), 1))
            if end_s < candidate.end_s:
                self._fill(candidate, end_s)

    def _improve_each_shape(self, starts: list[_Candidate]) -> None:
        """Improve the best start of each set of shapes, since local search rarely gets from wide to narrow shapes."""
        first = {candidate.shape.tobytes(): candidate for candidate in reversed(starts)}
        part = self._budget.part(_SHAPING)
        for number, candidate in enumerate(first.values()):
            self._improve(candidate, part.part(1 / (len(first) - number)))

    # Candidates ---------------------------------------------------------------------------------------------------

    def _done(self) -> bool:
        return self._best.end_s <= self._bound_s * (1 + _SAME)

    def _candidate(self, end_s: float, weights: Floats) -> _Candidate:
        """Return a copy of the plan as a candidate, which also replaces the best one if it ends earlier."""
        plan = self._search.plan
        found = _Candidate(
            end_s, weights.copy(), plan.begin_s.copy(), plan.ring.copy(), plan.bits.copy(), self._search.shape.copy()
        )
        if end_s < self._best.end_s:
            self._best = replace(found, weights=weights.copy())
        return found

    def _fill(self, candidate: _Candidate, end_s: float) -> None:
        """Overwrite a candidate with a copy of the plan."""
        found = self._candidate(end_s, candidate.weights)
        candidate.end_s, candidate.begin_s, candidate.ring = end_s, found.begin_s, found.ring
        candidate.bits, candidate.shape = found.bits, found.shape

    def _put(self, candidate: _Candidate) -> None:
        """Copy a candidate into the plan."""
        plan = self._search.plan
        plan.begin_s[:], plan.ring[:], plan.bits[:] = candidate.begin_s, candidate.ring, candidate.bits
        self._search.shape[:] = candidate.shape

    def _from_placed(self, placed: Placed) -> _Candidate:
        """Return a schedule as a candidate, in reversed time if the search uses it."""
        bits = np.add.reduceat(np.left_shift(1, placed.members), placed.member_begin[:-1])
        begin_s = placed.wct_s - placed.end_s if self._backwards else placed.begin_s.copy()
        weights = np.ones((2, len(self._instance.width)))
        return _Candidate(placed.wct_s, weights, begin_s, placed.enclosure.copy(), bits, placed.shape.copy())

    def _to_placed(self, candidate: _Candidate) -> Placed:
        """Return a candidate as a schedule in which tasks begin as early as the order on each FPGA allows."""
        seconds = self._problem.shape_seconds[candidate.shape]
        order = np.argsort(-(candidate.begin_s + seconds) if self._backwards else candidate.begin_s, kind="stable")
        plan = Plan(candidate.begin_s.copy(), candidate.ring, candidate.bits)
        settle(self._forwards_instance, self._search.room, candidate.shape, order, plan)
        taken = (candidate.bits[:, None] >> np.arange(self._problem.enclosure_fpgas.max())) & 1
        width = self._problem.shape_fpgas[candidate.shape]
        return in_order(
            Placed(
                enclosure=candidate.ring, shape=candidate.shape, begin_s=plan.begin_s, end_s=plan.begin_s + seconds,
                member_begin=np.concatenate(([0], np.cumsum(width))), members=np.nonzero(taken)[1],
            ),
            self._problem, self._order,
        )  # fmt: skip


def _search_for(instance: Instance, shape: Ints, seed: int) -> Search:
    """Return the state of a search, initialized with the shapes (T,)."""
    tasks, rings, fpgas = len(instance.arrival_s), len(instance.size), len(instance.ready_s)
    return Search(
        instance=instance, room=room_for(instance), plan=plan_for(tasks), trial=plan_for(tasks), shape=shape.copy(),
        first=np.zeros(rings, np.int64), following=np.zeros(tasks, np.int64), end_s=np.zeros(rings),
        rings=np.arange(rings), until_s=np.zeros(fpgas), loaded=np.zeros(fpgas, np.int64),
        order=np.zeros(tasks, np.int64), next_order=np.zeros(tasks, np.int64), key=np.zeros(tasks),
        random=np.array([1 + seed % 2147483646]), counts=np.zeros(2, np.int64),
    )  # fmt: skip


# ---- A problem in the form used by the loops of `kernels`


def placement_kind(width: int, links: int, fpgas: int, topology: int) -> int:
    """Return which FPGAs of such an enclosure such a task can take: `NOWHERE` (none), `ANY`, or `ARC` (adjacent)."""
    if width > fpgas:
        return NOWHERE
    if width == 1 or links == Links.ANY or topology == Topology.FULL:
        return ANY
    if links == Links.LINE or width == 2 or (topology == Topology.RING and width == fpgas):
        return ARC
    return NOWHERE


def instance_of(problem: TaskProblem) -> Instance:
    """Return the arrays of a problem; classes are the distinct pairs of width and links of the shapes."""
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    # The loops distinguish only adjacent and any FPGAs: rings of two are lines, and one FPGA needs no links.
    links = np.where(problem.shape_fpgas == 1, Links.ANY, links)
    links = np.where((problem.shape_fpgas == 2) & (links == Links.RING), Links.LINE, links)
    pairs, shape_class = np.unique(np.stack((problem.shape_fpgas, links), axis=1), axis=0, return_inverse=True)
    size, topology = problem.enclosure_fpgas, problem.enclosure_links
    kinds = {
        (fpgas, there): [placement_kind(width, wish, fpgas, there) for width, wish in pairs.tolist()]
        for fpgas, there in set(zip(size.tolist(), topology.tolist(), strict=True))
    }
    kind = [kinds[fpgas, there] for fpgas, there in zip(size.tolist(), topology.tolist(), strict=True)]
    tasks, fpgas = problem.tasks, problem.fpgas
    return Instance(
        size=_own(size),
        base=np.concatenate(([0], np.cumsum(size)[:-1])),
        wrap=((topology == Topology.RING) & (size > 2)).astype(np.int64),
        kind=np.array(kind, np.int64).reshape(len(size), len(pairs)),
        width=np.ascontiguousarray(pairs[:, 0]),
        shape_class=shape_class.reshape(-1).astype(np.int64),
        seconds=_own(problem.shape_seconds),
        shape_begin=_own(problem.shape_begin),
        arrival_s=_own(problem.arrival_s),
        tail_s=np.zeros(tasks),
        function=_own(problem.function),
        ready_s=_own(problem.ready_s),
        lane_tail_s=np.zeros(fpgas),
        loaded=_own(problem.loaded),
        load_s=float(problem.load_s),
    )


def sorted_by_class(problem: TaskProblem, placed: Placed) -> tuple[TaskProblem, Placed, Ints]:
    """Return both with tasks sorted by the class of their shape, longest first, and (T,) their original indices.

    Tasks are then in memory in the order of access, which makes scheduling of 100,000 tasks twice as fast.
    """
    links, fpgas = problem.links, problem.shape_fpgas[placed.shape]
    order = np.lexsort((-(problem.shape_seconds[placed.shape] + problem.arrival_s), links, fpgas))
    number = np.diff(problem.shape_begin)[order]
    shape_begin = np.concatenate(([0], np.cumsum(number)))
    shapes = np.arange(shape_begin[-1]) + np.repeat(problem.shape_begin[:-1][order] - shape_begin[:-1], number)
    by_class = replace(
        problem, shape_begin=shape_begin, shape_fpgas=problem.shape_fpgas[shapes],
        shape_seconds=problem.shape_seconds[shapes], links=links[order], arrival_s=problem.arrival_s[order],
        function=problem.function[order],
    )  # fmt: skip
    moved = _rearranged(placed, order, placed.shape[order] - problem.shape_begin[:-1][order] + shape_begin[:-1])
    return by_class, moved, order


def in_order(placed: Placed, by_class: TaskProblem, order: Ints) -> Placed:
    """Return a schedule of tasks from `sorted_by_class` with the tasks in their original order."""
    back = np.argsort(order)
    number = np.diff(by_class.shape_begin)[back]
    first = np.concatenate(([0], np.cumsum(number)[:-1]))
    return _rearranged(placed, back, (placed.shape - by_class.shape_begin[:-1])[back] + first)


def _rearranged(placed: Placed, order: Ints, shape: Ints) -> Placed:
    width = np.diff(placed.member_begin)[order]
    member_begin = np.concatenate(([0], np.cumsum(width)))
    places = np.arange(member_begin[-1]) + np.repeat(placed.member_begin[:-1][order] - member_begin[:-1], width)
    return Placed(
        enclosure=placed.enclosure[order], shape=shape, begin_s=placed.begin_s[order], end_s=placed.end_s[order],
        member_begin=member_begin, members=placed.members[places],
    )  # fmt: skip


def reversed_in_time(instance: Instance) -> Instance:
    """Return the problem in reversed time: arrival and ready times become times that follow a task or an FPGA's last.

    A schedule of one problem, reversed, is a schedule of the other, if no functions have to be loaded.
    """
    return instance._replace(
        arrival_s=np.zeros(len(instance.arrival_s)),
        tail_s=instance.arrival_s.copy(),
        ready_s=np.zeros(len(instance.ready_s)),
        lane_tail_s=instance.ready_s.copy(),
        function=np.full(len(instance.function), -1),
        loaded=np.full(len(instance.loaded), -1),
    )


def room_for(instance: Instance) -> Room:
    """Return scratch memory for schedules of the instance."""
    classes, tasks = len(instance.width), len(instance.arrival_s)
    rings, fpgas = len(instance.size), len(instance.ready_s)
    return Room(
        queue_begin=np.zeros(classes + 1, np.int64),
        queue=np.zeros(tasks, np.int64),
        key=np.zeros(tasks),
        head=np.zeros(classes, np.int64),
        head_key=np.zeros(classes),
        heap_s=np.zeros(rings),
        heap_ring=np.zeros(rings, np.int64),
        since_s=np.zeros(rings),
        until_s=np.zeros(fpgas),
        loaded=np.zeros(fpgas, np.int64),
        lane_s=np.zeros(int(instance.size.max(initial=1))),
    )


def plan_for(tasks: int) -> Plan:
    """Return an empty plan."""
    return Plan(begin_s=np.zeros(tasks), ring=np.zeros(tasks, np.int64), bits=np.zeros(tasks, np.int64))


def _own(array: Floats | Ints) -> np.ndarray:
    """Return a writable copy, as the loops are compiled for writable arrays only."""
    return np.array(array)
