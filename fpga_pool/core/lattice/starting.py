"""Choice of the waiting tasks that begin now, and of FPGAs to reserve for tasks that have waited long.

The live pool and the simulator share this code; they differ only in the source of FPGAs and times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fpga_pool.core.lattice.listing import Bools, Placed, allotted_shapes, first_fpgas, list_schedule, loops
from fpga_pool.core.lattice.paper import ListPolicy
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import PolicyState, TaskPolicy
from fpga_pool.core.types import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Waiting:
    """Tasks that some enclosure could take, and the possible shapes of each (indices of the whole problem's shapes)."""

    tasks: list[int]
    shapes: list[list[int]]

    @cached_property
    def flat(self) -> list[int]:
        """The shapes of all tasks, concatenated, in the order of their indices in a problem with only these tasks."""
        return [shape for of_task in self.shapes for shape in of_task]

    def only(self, tasks: set[int]) -> "Waiting":
        """Return the waiting tasks that are in the set."""
        kept = [(task, of_task) for task, of_task in zip(self.tasks, self.shapes, strict=True) if task in tasks]
        return Waiting(tasks=[task for task, _ in kept], shapes=[of_task for _, of_task in kept])


def able_to_run(problem: TaskProblem, tasks: Sequence[int], there: Bools) -> Waiting:
    """Return the tasks that some enclosure could take if all FPGAs in service, `there` (F,), were free."""
    base, runs = first_fpgas(problem), np.zeros(problem.fpgas, np.int64)
    rooms = []
    for e, (size, topology) in enumerate(
        zip(problem.enclosure_fpgas.tolist(), problem.enclosure_links.tolist(), strict=True)
    ):
        longest = loops().measure_runs(there, base[e], size, topology, runs)
        rooms.append((size, topology, int(there[base[e] : base[e + 1]].sum()), longest))
    known: dict[tuple[int, int], bool] = {}

    def fits_somewhere(links: int, fpgas: int) -> bool:
        if (links, fpgas) not in known:
            known[links, fpgas] = any(loops().fits(links, fpgas, *room) for room in rooms)
        return known[links, fpgas]

    begin, width, links = problem.shape_begin, problem.shape_fpgas, problem.links
    shapes = [
        [s for s in range(begin[task], begin[task + 1]) if fits_somewhere(int(links[task]), int(width[s]))]
        for task in tasks
    ]
    return Waiting(
        tasks=[task for task, of_task in zip(tasks, shapes, strict=True) if of_task],
        shapes=[of_task for of_task in shapes if of_task],
    )


def planned(
    policy: TaskPolicy, problem: TaskProblem, state: PolicyState, rng: np.random.Generator
) -> TaskSchedule | Placed:
    """Return the policy's schedule; lower bounds are not computed if the policy can omit them."""
    if isinstance(policy, ListPolicy):
        return policy.place(problem, allotted_shapes(problem), state)
    return policy.decide(problem, state, 0.0, rng)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Begun:
    """A task to which FPGAs are allocated, now or later."""

    #: The index of the task in the problem, and of its shape among the problem's shapes.
    task: int
    shape: int
    #: The enclosure, the indices of the FPGAs in it, and their indices among all FPGAs.
    enclosure: int
    members: Ints
    fpgas: Ints
    #: Seconds until all these FPGAs are free, until the task computes (possibly after a load), and until it ends.
    wait_s: float
    begin_s: float
    end_s: float


def _anywhere(task: int, fpgas: Ints) -> bool:  # noqa: ARG001
    return True


class Starting:
    """The state of the FPGAs at one moment, while some of them are allocated to tasks.

    `waiting` are the waiting tasks in order of arrival; `there` (F,) tells which FPGAs are in service, `ready_s` (F,)
    the seconds until each is free (0 = now), `loaded` (F,) the function that each has loaded, -1 = none.  `takeable`
    (F,) tells which FPGAs a task that has waited long may take even if they are not free, None = only free ones.
    `may_begin` returns whether a task may have these FPGAs (indices among all) now.
    """

    def __init__(
        self,
        problem: TaskProblem,
        waiting: Sequence[int],
        *,
        there: Bools,
        ready_s: Floats,
        loaded: Ints,
        takeable: Bools | None = None,
        may_begin: Callable[[int, Ints], bool] = _anywhere,
    ) -> None:
        self._problem = problem
        self._may_begin = may_begin
        self._base = first_fpgas(problem)
        self._able = able_to_run(problem, waiting, there)
        self._free = there & (ready_s <= 0)
        self._takeable = self._free.copy() if takeable is None else takeable.copy()
        self._loaded = loaded.copy()
        self._ready_s = np.maximum(ready_s, 0.0)
        if not there.all():
            # No task is planned on an FPGA out of service, since all waiting tasks can end before this time.
            all_s = sum(problem.shape_seconds[of_task].max() + problem.load_s for of_task in self._able.shapes)
            self._ready_s[~there] = self._ready_s.max() + 2 * all_s + 1
        self._last: tuple[Waiting, TaskSchedule | Placed] | None = None

    @property
    def tasks(self) -> list[int]:
        """The tasks that the FPGAs in service could take, in order of arrival."""
        return self._able.tasks

    @property
    def any_free(self) -> bool:
        """Whether some FPGA is free."""
        return bool(self._free.any())

    def reserve(self, task: int) -> tuple[Begun | None, bool]:
        """Reserve for a task the FPGAs where it can begin first; return the allocation and whether it begins now.

        The task takes its fastest shape.  The allocation is None if it could begin there now but may not: then it waits
        without a reservation.
        """
        alone = self._able.only({task})
        rest = self._rest(alone)
        placed = list_schedule(rest, allotted_shapes(rest), np.zeros(1, np.int64))
        self._last = alone, placed
        begun = self._begun(alone, placed, 0)
        begins = bool(self._takeable[begun.fpgas].all())
        if begins and not self._may_begin(task, begun.fpgas):
            return None, False
        self._ready_s[begun.fpgas] = begun.end_s
        self._takeable[begun.fpgas] = False
        if begins:
            self._occupy(begun)
        return begun, begins

    def begin(
        self, tasks: set[int], solve: Callable[[TaskProblem], TaskSchedule | Placed | None]
    ) -> list[Begun] | None:
        """Schedule all the tasks with `solve` and return those that begin now; None if there is no schedule."""
        self._last = None
        some = self._able.only(tasks)
        if not some.tasks:
            return []
        plan = solve(self._rest(some))
        if plan is None:
            return None
        self._last = some, plan
        begun = []
        for index in np.flatnonzero(plan.begin_s <= self._problem.load_s).tolist():
            found = self._begun(some, plan, index)
            if found.wait_s <= 0 and self._free[found.fpgas].all() and self._may_begin(found.task, found.fpgas):
                self._occupy(found)
                begun.append(found)
        return begun

    def later_s(self) -> float:
        """Return the seconds until the first later task of the last schedule begins; inf = there is none."""
        if self._last is None:
            return np.inf
        waiting, plan = self._last
        waits_s = (self._begun(waiting, plan, index).wait_s for index in range(len(waiting.tasks)))
        return min((wait_s for wait_s in waits_s if wait_s > 0), default=np.inf)

    def occupy(self, fpgas: Ints, until_s: float) -> None:
        """Mark FPGAs as occupied until a later time, as they are assigned to another task."""
        self._ready_s[fpgas] = until_s
        self._free[fpgas] = self._takeable[fpgas] = False

    def _occupy(self, begun: Begun) -> None:
        self._free[begun.fpgas] = begun.end_s <= 0
        if self._problem.function[begun.task] >= 0:
            self._loaded[begun.fpgas] = self._problem.function[begun.task]

    def _begun(self, waiting: Waiting, plan: TaskSchedule | Placed, index: int) -> Begun:
        problem, task = self._problem, waiting.tasks[index]
        members = plan.members[plan.member_begin[index] : plan.member_begin[index + 1]]
        fpgas = self._base[plan.enclosure[index]] + members
        function, switching = problem.function[task], problem.load_s > 0
        loads = any(loops().must_load(function, loaded, switching) for loaded in self._loaded[fpgas].tolist())
        begin_s = float(plan.begin_s[index])
        return Begun(
            task=task,
            shape=waiting.flat[int(plan.shape[index])],
            enclosure=int(plan.enclosure[index]),
            members=members,
            fpgas=fpgas,
            wait_s=begin_s - (problem.load_s if loads else 0.0),
            begin_s=begin_s,
            end_s=float(plan.end_s[index]),
        )

    def _rest(self, waiting: Waiting) -> TaskProblem:
        """Return the problem of these tasks, all of which have arrived, with the present state of the FPGAs."""
        problem = self._problem
        chosen = np.array(waiting.flat, np.int64)
        rows = np.array(waiting.tasks, np.int64)
        return TaskProblem(
            enclosure_fpgas=problem.enclosure_fpgas,
            enclosure_links=problem.enclosure_links,
            shape_begin=np.cumsum([0] + [len(of_task) for of_task in waiting.shapes]),
            shape_fpgas=problem.shape_fpgas[chosen],
            shape_seconds=problem.shape_seconds[chosen],
            links=problem.links[rows],
            function=problem.function[rows],
            loaded=self._loaded,
            ready_s=self._ready_s,
            load_s=problem.load_s,
        )
