"""Tasks that arrive over time on FPGAs that fail and return, planned anew whenever something happens.

The policy is asked for a schedule of what waits, on what is there now; of that schedule only what begins at once is
carried out.  So it never knows what is yet to arrive, to fail or to return.
"""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.fitting_kernels import must_load
from fpga_pool.core.lattice.listing import Placed, first_fpgas, list_schedule
from fpga_pool.core.lattice.paper import ListPolicy
from fpga_pool.core.lattice.shapes import allotted_shapes
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import TaskPolicy
from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.lattice.outages import Outage
from fpga_pool.sim.lattice.rest import Waiting, able_to_run, rest_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What came of it."""

    #: When and where each task ran in the end.
    begin_s: Floats
    end_s: Floats
    enclosure: Ints
    shape: Ints
    members: tuple[Ints, ...]
    #: Runs that an FPGA failed under; each began anew.
    lost_runs: int
    plans: int

    def schedule(self, bound_paper_s: float, bound_tight_s: float) -> TaskSchedule:
        """Return it as a schedule."""
        return TaskSchedule(
            enclosure=self.enclosure,
            shape=self.shape,
            begin_s=self.begin_s,
            end_s=self.end_s,
            member_begin=np.cumsum([0] + [len(members) for members in self.members]),
            members=np.concatenate([np.zeros(0, np.int64), *self.members]),
            bound_paper_s=bound_paper_s,
            bound_tight_s=bound_tight_s,
        )


def simulate(
    problem: TaskProblem,
    policy: TaskPolicy,
    *,
    outages: tuple[Outage, ...] = (),
    patience_s: float = np.inf,
    seed: int = 0,
) -> Outcome:
    """Run the tasks as they arrive.

    Parameters
    ----------
    problem:
        The tasks, with their arrivals, and the enclosures.
    policy:
        Who plans what waits.
    outages:
        FPGAs that are away for a while.
    patience_s:
        A task that has waited longer gets a reservation: the FPGAs where it can begin first are kept for it, in order
        of arrival, whatever the policy would do with them.  So no task starves, however wide; inf = no reservations.
    seed:
        Of what the policy draws.

    Raises
    ------
    ValueError
        For an outage of an FPGA that is not there, or that does not end after it begins.

    """
    for outage in outages:
        outage.check(problem)
    run = _Run(problem, policy, patience_s, seed)
    for task, arrival_s in enumerate(problem.arrival_s.tolist()):
        run.engine.at(arrival_s, lambda task=task: run.arrive(task))  # type: ignore[misc]
    for fpga, ready_s in enumerate(problem.ready_s.tolist()):
        if ready_s > 0:
            run.engine.at(ready_s, run.plan_soon)
            run.free_s[fpga] = ready_s
    for outage in outages:
        fpga = int(run.base[outage.enclosure]) + outage.fpga
        run.engine.at(outage.from_s, lambda fpga=fpga: run.fail(fpga))  # type: ignore[misc]
        run.engine.at(outage.until_s, lambda fpga=fpga: run.come_back(fpga))  # type: ignore[misc]
    run.engine.run(np.inf)
    return run.outcome()


class _Run:
    """What waits and runs, and which FPGAs are there."""

    def __init__(self, problem: TaskProblem, policy: TaskPolicy, patience_s: float, seed: int) -> None:
        self.problem, self.policy, self.patience_s = problem, policy, patience_s
        self.engine = Engine()
        self.base = first_fpgas(problem)
        self.free_s = np.zeros(problem.fpgas)
        #: Outages under way of each FPGA: they may overlap.
        self.down = np.zeros(problem.fpgas, np.int64)
        self.loaded = problem.loaded.copy()
        self.waiting: list[int] = []
        self.running: dict[int, Ints] = {}
        self._runs = np.zeros(problem.tasks, np.int64)
        self._begin_s, self._end_s = np.full(problem.tasks, np.inf), np.full(problem.tasks, np.inf)
        self._enclosure, self._shape = np.zeros(problem.tasks, np.int64), problem.shape_begin[:-1].copy()
        self._lost_runs = self._plans = 0
        self._planning = False
        self._rng = np.random.default_rng(seed)
        self._members: list[Ints] = [np.zeros(0, np.int64)] * problem.tasks

    def arrive(self, task: int) -> None:
        """Have a task wait; one whose patience ends is looked at again."""
        self.waiting.append(task)
        self.plan_soon()
        if self.patience_s < np.inf:
            self.engine.after(self.patience_s, self.plan_soon)

    def fail(self, fpga: int) -> None:
        """Take an FPGA away; what runs on it waits again, with the place in line that its arrival gives it."""
        self.down[fpga] += 1
        for task, members in list(self.running.items()):
            if fpga in members and self._end_s[task] > self.engine.now_s:
                del self.running[task]
                self._runs[task] += 1
                self._lost_runs += 1
                self.free_s[members] = self.engine.now_s
                self._begin_s[task] = self._end_s[task] = np.inf
                self.waiting.append(task)
                self.waiting.sort(key=lambda one: (self.problem.arrival_s[one], one))
        self.plan_soon()

    def come_back(self, fpga: int) -> None:
        """Give an FPGA back, with nothing loaded."""
        self.down[fpga] -= 1
        self.loaded[fpga] = -1
        self.plan_soon()

    def end(self, task: int, run: int) -> None:
        """Note that a run has ended, unless it was lost before."""
        if self._runs[task] == run:
            del self.running[task]
            self.plan_soon()

    def plan_soon(self) -> None:
        """Plan when all that happens at this instant has happened."""
        if not self._planning:
            self._planning = True
            self.engine.at(self.engine.now_s, self._plan)

    def outcome(self) -> Outcome:
        """Return what came of it."""
        return Outcome(
            begin_s=self._begin_s,
            end_s=self._end_s,
            enclosure=self._enclosure,
            shape=self._shape,
            members=tuple(self._members),
            lost_runs=self._lost_runs,
            plans=self._plans,
        )

    def _plan(self) -> None:
        self._planning = False
        there = self.down == 0
        able = able_to_run(self.problem, self.waiting, there)
        if not able.tasks or not (self.free_s[there] <= self.engine.now_s).any():
            return
        self._plans += 1
        aside_s = np.maximum(self.free_s - self.engine.now_s, 0.0)
        # Nothing is planned onto an FPGA that is away, since all that waits can be done before this.
        all_s = sum(self.problem.shape_seconds[of_task].max() + self.problem.load_s for of_task in able.shapes)
        aside_s[~there] = aside_s.max() + 2 * all_s + 1
        impatient = {task for task in able.tasks if self._has_waited_too_long(task)}
        for task in able.only(impatient).tasks:
            alone = able.only({task})
            rest = rest_of(self.problem, alone, aside_s, self.loaded)
            placed = list_schedule(rest, allotted_shapes(rest), np.zeros(1, np.int64))
            self._carry_out(alone, placed)
            aside_s[self.base[placed.enclosure[0]] + placed.members] = placed.end_s[0]
        patient = able.only(set(able.tasks) - impatient)
        if patient.tasks:
            rest = rest_of(self.problem, patient, aside_s, self.loaded)
            self._carry_out(patient, self._planned(rest))

    def _planned(self, rest: TaskProblem) -> TaskSchedule | Placed:
        """Return the policy's schedule; without bounds, which nobody looks at, where it can do without them."""
        if isinstance(self.policy, ListPolicy):
            return self.policy.place(rest, allotted_shapes(rest))
        return self.policy.decide(rest, None, 0.0, self._rng)

    def _has_waited_too_long(self, task: int) -> bool:
        # The event at the end of the patience is at this very sum.
        return bool(self.problem.arrival_s[task] + self.patience_s <= self.engine.now_s)

    def _carry_out(self, waiting: Waiting, plan: TaskSchedule | Placed) -> None:
        """Begin those of the tasks that a plan begins now, the loads before them included."""
        later_s = np.inf
        shapes = [s for of_task in waiting.shapes for s in of_task]
        for i, task in enumerate(waiting.tasks):
            members = plan.members[plan.member_begin[i] : plan.member_begin[i + 1]]
            fpgas = self.base[plan.enclosure[i]] + members
            function, switching = self.problem.function[task], self.problem.load_s > 0
            loads = any(must_load(function, loaded, switching) for loaded in self.loaded[fpgas].tolist())
            wait_s = float(plan.begin_s[i]) - (self.problem.load_s if loads else 0.0)
            if wait_s <= 0 and (self.free_s[fpgas] <= self.engine.now_s).all():
                self._begin(task, int(plan.enclosure[i]), shapes[plan.shape[i]], members, float(plan.begin_s[i]))
            elif wait_s > 0:
                later_s = min(later_s, wait_s)
        if later_s < np.inf and not self.running:
            self.engine.after(later_s, self.plan_soon)

    def _begin(self, task: int, enclosure: int, shape: int, members: Ints, after_s: float) -> None:
        fpgas = self.base[enclosure] + members
        self.waiting.remove(task)
        self.running[task] = fpgas
        self._enclosure[task], self._shape[task], self._members[task] = enclosure, shape, members
        self._begin_s[task] = self.engine.now_s + after_s
        self._end_s[task] = self._begin_s[task] + self.problem.shape_seconds[shape]
        self.free_s[fpgas] = self._end_s[task]
        if self.problem.function[task] >= 0:
            self.loaded[fpgas] = self.problem.function[task]
        run = int(self._runs[task])
        self.engine.at(float(self._end_s[task]), lambda: self.end(task, run))
