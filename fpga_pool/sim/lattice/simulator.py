"""Simulation of tasks that arrive over time on FPGAs that fail and return; the plan is renewed at every event.

The policy returns a schedule of the waiting tasks on the available FPGAs, and only the tasks that begin at once in that
schedule are started.  So the policy never knows future arrivals, outages or returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.listing import first_fpgas
from fpga_pool.core.lattice.starting import Begun, Starting, planned
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import TaskPolicy
from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An interval in which one FPGA (its number within the enclosure) is not available."""

    enclosure: int
    fpga: int
    from_s: float
    until_s: float

    def check(self, problem: TaskProblem) -> None:
        """Raise ValueError if the problem has no such FPGA, or if the outage does not end after its beginning."""
        if not 0 <= self.enclosure < len(problem.enclosure_fpgas):
            raise ValueError(
                f"outage: enclosure {self.enclosure} is out of range, expected 0..{len(problem.enclosure_fpgas) - 1}"
            )
        size = int(problem.enclosure_fpgas[self.enclosure])
        if not 0 <= self.fpga < size:
            raise ValueError(f"outage: enclosure {self.enclosure} has FPGAs 0..{size - 1}, got {self.fpga}")
        if not 0 <= self.from_s < self.until_s < np.inf:
            raise ValueError(f"outage: expected an end after the beginning, got {self.from_s:g} to {self.until_s:g} s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of a simulation."""

    #: Time and place of the completed run of each task.
    begin_s: Floats
    end_s: Floats
    enclosure: Ints
    shape: Ints
    members: tuple[Ints, ...]
    #: Runs that were lost to a failed FPGA; each was repeated.
    lost_runs: int
    plans: int

    def schedule(self, bound_paper_s: float, bound_tight_s: float) -> TaskSchedule:
        """Return the outcome as a schedule, with these bounds."""
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
    """Run the tasks as they arrive, with outages of FPGAs; `policy` plans the waiting tasks.

    A task that has waited longer than `patience_s` gets a reservation, in order of arrival: the FPGAs where it can
    begin first are kept for it and not offered to the policy.  So no task starves, however wide; inf = no
    reservations. Raises ValueError for an outage of an unknown FPGA, or one that does not end after its beginning.
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
    """Waiting and running tasks, and the available FPGAs."""

    def __init__(self, problem: TaskProblem, policy: TaskPolicy, patience_s: float, seed: int) -> None:
        self.problem, self.policy, self.patience_s = problem, policy, patience_s
        self.engine = Engine()
        self.base = first_fpgas(problem)
        self.free_s = np.zeros(problem.fpgas)
        #: Number of current outages of each FPGA; outages may overlap.
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
        """Add a task to the waiting ones, and plan again at the end of its patience."""
        self.waiting.append(task)
        self.plan_soon()
        if self.patience_s < np.inf:
            self.engine.after(self.patience_s, self.plan_soon)

    def fail(self, fpga: int) -> None:
        """Begin an outage of an FPGA; the task that runs on it waits again, in order of arrival."""
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
        """End an outage of an FPGA, which has nothing loaded now."""
        self.down[fpga] -= 1
        self.loaded[fpga] = -1
        self.plan_soon()

    def end(self, task: int, run: int) -> None:
        """End a run of a task, unless it was lost before."""
        if self._runs[task] == run:
            del self.running[task]
            self.plan_soon()

    def plan_soon(self) -> None:
        """Plan after all events of this instant."""
        if not self._planning:
            self._planning = True
            self.engine.at(self.engine.now_s, self._plan)

    def outcome(self) -> Outcome:
        """Return the outcome of the run."""
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
        if not self.waiting or not (self.free_s[there] <= self.engine.now_s).any():
            return
        starting = Starting(
            self.problem,
            self.waiting,
            there=there,
            ready_s=np.maximum(self.free_s - self.engine.now_s, 0.0),
            loaded=self.loaded,
        )
        if not starting.tasks:
            return
        self._plans += 1
        # Computed like the time of the event at the end of the patience, so that rounding makes no difference.
        ends_s, now_s = self.problem.arrival_s + self.patience_s, self.engine.now_s
        impatient = [task for task in starting.tasks if ends_s[task] <= now_s]
        for task in impatient:
            begun, begins = starting.reserve(task)
            self._carry_out([begun] if begun is not None and begins else [], starting)
        patient = set(starting.tasks).difference(impatient)
        planned_first = starting.begin(patient, lambda rest: planned(self.policy, rest, None, self._rng))
        self._carry_out(planned_first or [], starting)

    def _carry_out(self, begun: Sequence[Begun], starting: Starting) -> None:
        """Begin tasks, including their loads; schedule the next plan if there is no task whose end triggers it."""
        for each in begun:
            self._begin(each)
        if not self.running and (later_s := starting.later_s()) < np.inf:
            self.engine.after(later_s, self.plan_soon)

    def _begin(self, begun: Begun) -> None:
        task, fpgas = begun.task, begun.fpgas
        self.waiting.remove(task)
        self.running[task] = fpgas
        self._enclosure[task], self._shape[task], self._members[task] = begun.enclosure, begun.shape, begun.members
        self._begin_s[task] = self.engine.now_s + begun.begin_s
        self._end_s[task] = self._begin_s[task] + self.problem.shape_seconds[begun.shape]
        self.free_s[fpgas] = self._end_s[task]
        if self.problem.function[task] >= 0:
            self.loaded[fpgas] = self.problem.function[task]
        run = int(self._runs[task])
        self.engine.at(float(self._end_s[task]), lambda: self.end(task, run))
