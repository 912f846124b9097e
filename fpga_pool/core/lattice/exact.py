"""`exact`: the shortest schedule of a few tasks, with a proof of optimality, by mixed integer programming.

The program decides a place for each task, and an order for each pair that shares an FPGA.  Times are shares of a
horizon.  A task on a line or ring chooses among the connected paths of its enclosure, otherwise among single FPGAs.
The order of two tasks on one FPGA is a disjunction with a big constant that disables one of its two rows (Manne, "On
the job-shop scheduling problem", 1960).  One load takes no longer than two in a row, so keeping each pair apart is
enough.
"""

from collections import defaultdict
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import numpy as np

from fpga_pool.core.integer import ExactPolicy, Limits, programme, solve
from fpga_pool.core.lattice.listing import Placed, can_hold, empty_schedule, first_fpgas
from fpga_pool.core.lattice.plus import LatticePlus, LatticePlusParams
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.topology import Links, Topology, paths
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Ints

if TYPE_CHECKING:
    from pulp import LpAffineExpression, LpVariable

#: A task's shape, the enclosure, and the path it takes there; None if it can take any FPGAs.
Place = tuple[int, int, tuple[int, ...] | None]


class Model:
    """The mixed integer program of a problem.

    `horizon_s` is the end of a known schedule, after which no task begins or ends.  The makespan must not exceed
    `below_s`; `known_s` is a proven lower bound on it.
    """

    def __init__(self, problem: TaskProblem, horizon_s: float, below_s: float, known_s: float) -> None:
        self._problem, self._horizon_s, self._known_s = problem, horizon_s, known_s
        self._tasks = range(problem.tasks)
        self._base = first_fpgas(problem).tolist()
        self._model = programme("tasks")
        self._makespan = self._model.add_variable("makespan", min(known_s, below_s) / horizon_s, below_s / horizon_s)
        self._model += self._makespan
        self._place = [self._places(task) for task in self._tasks]
        self._picked = self._picks()
        self._on = [self._fpgas(task) for task in self._tasks]
        self._begin = [
            self._model.add_variable(f"begin_{task}", problem.arrival_s[task] / horizon_s, 1.0) for task in self._tasks
        ]
        self._lasts = [
            _sum(problem.shape_seconds[shape] / horizon_s * chosen for (shape, _, _), chosen in places.items())
            for places in self._place
        ]

    @property
    def unknowns(self) -> int:
        """The number of integer variables."""
        chosen = sum(map(len, self._place)) + sum(map(len, self._picked))
        return chosen + self._problem.tasks * (self._problem.tasks - 1)

    def solve(self, limits: Limits) -> tuple[Placed | None, float]:
        """Return the best schedule found, None if there is none within the limit, and a proven lower bound."""
        self._fill_enclosures()
        for task in self._tasks:
            self._model += _sum(self._place[task].values()) == 1
            self._model += self._begin[task] + self._lasts[task] <= self._makespan
            self._wait_for_fpgas(task)
        before = {
            pair: self._model.add_variable(f"before_{pair[0]}_{pair[1]}", cat="Binary")
            for pair in permutations(self._tasks, 2)
        }
        for (first, second), is_before in before.items():
            ends = self._begin[first] + self._lasts[first] + self._load_s(first, second) * is_before
            self._model += ends <= self._begin[second] + (1 - is_before)
        for one, other in combinations(self._tasks, 2):
            either = before[one, other] + before[other, one]
            self._model += either <= 1
            for fpga in self._on[one].keys() & self._on[other].keys():
                self._model += self._on[one][fpga] + self._on[other][fpga] - 1 <= either
            for both in self._too_wide(one, other):
                self._model += both - 1 <= either
        solved = solve(self._model, limits, self._known_s / self._horizon_s)
        return (self._placed() if solved.found else None), solved.bound * self._horizon_s

    def _shapes(self, task: int) -> range:
        return range(int(self._problem.shape_begin[task]), int(self._problem.shape_begin[task + 1]))

    def _places(self, task: int) -> "dict[Place, LpVariable]":
        """Return a binary variable for each place that a task can take."""
        problem, found = self._problem, list[Place]()
        wish = Links(int(problem.links[task]))
        for shape in self._shapes(task):
            width = int(problem.shape_fpgas[shape])
            holds = can_hold(problem, np.array([wish]), np.array([width]))[0]
            for enclosure in np.flatnonzero(holds).tolist():
                size, topology = (
                    int(problem.enclosure_fpgas[enclosure]),
                    Topology(int(problem.enclosure_links[enclosure])),
                )
                if wish == Links.ANY or topology == Topology.FULL:
                    found.append((shape, enclosure, None))
                else:
                    found += [(shape, enclosure, path) for path in paths(range(size), size, topology, wish, width)]
        return {
            place: self._model.add_variable(f"place_{task}_{number}", cat="Binary")
            for number, place in enumerate(found)
        }

    def _picks(self) -> "list[dict[int, LpVariable]]":
        """Return for each task a binary variable per FPGA in the enclosures where it can take any FPGAs."""
        picked: list[dict[int, LpVariable]] = []
        for task in self._tasks:
            own: dict[int, LpVariable] = {}
            chosen: dict[int, list[LpAffineExpression]] = defaultdict(list)
            for (shape, enclosure, path), there in self._place[task].items():
                if path is None:
                    chosen[enclosure].append(int(self._problem.shape_fpgas[shape]) * there)
            for enclosure, widths in chosen.items():
                fpgas = range(self._base[enclosure], self._base[enclosure + 1])
                own |= {fpga: self._model.add_variable(f"pick_{task}_{fpga}", cat="Binary") for fpga in fpgas}
                self._model += _sum(own[fpga] for fpga in fpgas) == _sum(widths)
            picked.append(own)
        return picked

    def _fpgas(self, task: int) -> "dict[int, LpAffineExpression]":
        """Return, for each FPGA that a task could have, whether it has it."""
        terms: dict[int, list[LpVariable]] = defaultdict(list)
        for fpga, pick in self._picked[task].items():
            terms[fpga].append(pick)
        for (_, enclosure, path), chosen in self._place[task].items():
            for member in path or ():
                terms[self._base[enclosure] + member].append(chosen)
        return {fpga: _sum(own) for fpga, own in terms.items()}

    def _fill_enclosures(self) -> None:
        """Require that the FPGA-seconds of each enclosure, and the seconds of each FPGA, fit into the makespan."""
        problem = self._problem
        area: dict[int, list[LpAffineExpression]] = defaultdict(list)
        busy: dict[int, list[LpAffineExpression]] = defaultdict(list)
        for task in self._tasks:
            for (shape, enclosure, _), chosen in self._place[task].items():
                seconds = problem.shape_seconds[shape] / self._horizon_s
                area[enclosure].append(float(seconds * problem.shape_fpgas[shape]) * chosen)
            least_s = float(problem.shape_seconds[self._shapes(task)].min()) / self._horizon_s
            for fpga, there in self._on[task].items():
                busy[fpga].append(least_s * there)
        for enclosure, sums in area.items():
            self._model += _sum(sums) <= int(problem.enclosure_fpgas[enclosure]) * self._makespan
        for sums in busy.values():
            self._model += _sum(sums) <= self._makespan

    def _wait_for_fpgas(self, task: int) -> None:
        """Require that a task begins after its FPGAs are ready, and loaded if they initially have another function."""
        problem = self._problem
        for fpga, there in self._on[task].items():
            ready_s = float(problem.ready_s[fpga])
            if problem.loaded[fpga] >= 0 and 0 <= problem.function[task] != problem.loaded[fpga]:
                ready_s += problem.load_s
            if ready_s > 0:
                self._model += self._begin[task] >= ready_s / self._horizon_s * there

    def _load_s(self, first: int, second: int) -> float:
        one, other = self._problem.function[[first, second]].tolist()
        return self._problem.load_s / self._horizon_s if one >= 0 and other >= 0 and one != other else 0.0

    def _too_wide(self, one: int, other: int) -> "list[LpAffineExpression]":
        """Return how many of two tasks are in each enclosure where they cannot run side by side in any shapes."""
        problem, found = self._problem, []
        for enclosure in range(len(problem.enclosure_fpgas)):
            there = [
                [(int(problem.shape_fpgas[shape]), chosen) for (shape, where, _), chosen in self._place[task].items()
                 if where == enclosure]
                for task in (one, other)
            ]  # fmt: skip
            if all(there) and sum(min(width for width, _ in own) for own in there) > problem.enclosure_fpgas[enclosure]:
                found.append(_sum(chosen for own in there for _, chosen in own))
        return found

    def _placed(self) -> Placed:
        """Return the schedule given by the solution, with each task as early as its FPGAs allow."""
        problem = self._problem
        chosen = [next(place for place, x in places.items() if x.value() > 0.5) for places in self._place]
        placed = empty_schedule(problem, np.array([shape for shape, _, _ in chosen], np.int64))
        free_s, loaded = np.array(problem.ready_s), np.array(problem.loaded)
        for task in sorted(self._tasks, key=lambda task: self._begin[task].value()):
            shape, enclosure, path = chosen[task]
            members = path or self._picked_members(task, enclosure)
            fpgas: Ints = self._base[enclosure] + np.array(members)
            function = int(problem.function[task])
            loads = (loaded[fpgas] >= 0) & (loaded[fpgas] != function) & (function >= 0)
            begin_s = max(float(problem.arrival_s[task]), float((free_s[fpgas] + loads * problem.load_s).max()))
            end_s = begin_s + float(problem.shape_seconds[shape])
            free_s[fpgas] = end_s
            if function >= 0:
                loaded[fpgas] = function
            placed.enclosure[task], placed.begin_s[task], placed.end_s[task] = enclosure, begin_s, end_s
            placed.members[placed.member_begin[task] : placed.member_begin[task + 1]] = members
        return placed

    def _picked_members(self, task: int, enclosure: int) -> tuple[int, ...]:
        begin, end = self._base[enclosure], self._base[enclosure + 1]
        return tuple(fpga - begin for fpga in range(begin, end) if self._picked[task][fpga].value() > 0.5)


def _sum(terms: object) -> "LpAffineExpression":
    import pulp

    return pulp.lpSum(terms)


#: Effort of the search for the initial schedule.
_EFFORT = 10


class Exact(ExactPolicy):
    """A reference for the other policies that solves a mixed integer program, however long that takes.

    It begins with the schedule of `lattice_plus` and searches for shorter ones until the best is proven optimal, up to
    `gap`, or the limit is reached.  It returns the best one found, with the proven bound in `bound_tight_s`.
    """

    def prepare(self) -> None:
        """Compile the code that the initial schedule needs, or load it from the cache."""
        LatticePlus().prepare()

    def decide(self, view: TaskProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> TaskSchedule:
        """Schedule all tasks; deterministic if the search is limited by effort.

        Raises ValueError if a task fits in no enclosure, the problem is too large or not supported by the model, or no
        solver is installed.
        """
        _require_modelled(view)
        known = LatticePlus(LatticePlusParams(effort=_EFFORT)).decide(view, None, now_s, rng)
        horizon_s, gap = known.wct_s, self._params.gap
        self._report_progress(horizon_s, known.bound_tight_s)
        if view.tasks == 0 or horizon_s * (1 - gap) <= known.bound_tight_s:
            return known
        model = Model(view, horizon_s, horizon_s * (1 - gap), known.bound_tight_s)
        self._params.require_few(model.unknowns)
        found, bound_s = model.solve(self._limits(horizon_s))
        best = known if found is None or found.wct_s >= horizon_s else found
        bound_s = max(known.bound_tight_s, min(bound_s, horizon_s * (1 - gap)))
        return TaskSchedule(
            enclosure=best.enclosure, shape=best.shape, begin_s=best.begin_s, end_s=best.end_s,
            member_begin=best.member_begin, members=best.members,
            bound_paper_s=known.bound_paper_s, bound_tight_s=min(bound_s, best.wct_s),
        )  # fmt: skip


def _require_modelled(problem: TaskProblem) -> None:
    """Raise a ValueError if loads take time and some tasks need a function while others run with any."""
    if problem.load_s > 0 and (problem.function >= 0).any() and (problem.function < 0).any():
        raise ValueError(
            "function: with load_s either all tasks need one or none does; the model does not keep functions loaded"
        )
