"""The simulator of a cluster: discrete events, with rates that change when a subtask begins or ends on a unit.

All events of one instant are processed first, in a fixed order; then the cluster policy decides for tasks in order of
arrival, then each node.  So an outcome does not depend on the order in which events were scheduled.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fpga_pool.core.cluster.nodes import ObservingNodePolicy
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, ClusterView, Deadlines, TaskView
from fpga_pool.core.policy import ClusterPolicy, Following, Learning, Profiling
from fpga_pool.core.types import Floats, Ints
from fpga_pool.sim.cluster.node import Calibration, Interference, Node, Profiler, Work
from fpga_pool.sim.cluster.tables import PipelineTable, World
from fpga_pool.sim.cluster.workload import Workload, all_nodes

#: Kinds of events, in the order in which those of one instant are processed.
_ENDS, _DELIVERED, _PROFILED, _FAILS, _REPAIRED, _CHANGES, _ARRIVES = range(7)
#: Random stream of the policies.
_POLICY = 100
_GBPS_IN_MB_PER_S = 125.0


class Execution(NamedTuple):
    """One execution of a subtask on a unit; on a failed node, until the failure."""

    task: int
    step: int
    node: int
    unit: int
    begin_s: float
    end_s: float
    completed: bool
    #: True seconds of the subtask alone on the unit.
    alone_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of T tasks."""

    arrival_s: Floats
    #: (T,) infinite = not completed, because no node could execute it, or all such nodes had failed or left.
    end_s: Floats
    #: (T,) node of the last placement; -1 = not placed.
    node: Ints
    #: (T,) number of placements.
    placements: Ints
    executions: list[Execution]


@dataclass(slots=True, eq=False)
class PipelineSteps:
    """A pipeline of n steps, which are identified by numbers."""

    number: int
    #: Type of each step.
    types: list[int]
    #: By step: its predecessors, whose output it needs, and its successors.
    before: list[list[int]]
    after: list[list[int]]
    #: Steps in topological order.
    order: list[int]


@dataclass(slots=True, eq=False)
class _Task:
    pipeline: PipelineSteps
    node: int = -1
    #: By step, seconds on each class of units of its node.
    estimate_s: list[list[float]] = field(default_factory=list)
    true_s: list[list[float]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    unfinished: int = 0
    due_s: float = 0.0


class Simulation:
    """One run of one policy in one world."""

    def __init__(self, world: World, workload: Workload, policy: ClusterPolicy, seed: int) -> None:
        self._rng = np.random.default_rng([seed, _POLICY])
        if isinstance(policy, Learning):
            policy = policy.learner(self._rng)
        node_policy = policy.node
        if isinstance(node_policy, Learning):
            node_policy = node_policy.learner(self._rng)
        self._world, self._workload, self.policy = world, workload, policy
        self._profiler = Profiler(world, node_policy.profile_s) if isinstance(node_policy, Profiling) else None
        self._calibration = Calibration(len(world.subtasks), len(world.nodes)) if policy.calibrate else None
        self._observer = node_policy if isinstance(node_policy, ObservingNodePolicy) else None
        self._kinds = all_nodes(world)
        interference = Interference(world)
        self._nodes = [Node(i, kind, world, node_policy, interference) for i, kind in enumerate(self._kinds)]
        tables = [world.nodes[kind] for kind in self._kinds]
        self._deadlines = Deadlines()
        self._member = [table.present for table in tables]
        self._up = [True] * len(tables)
        kinds = len(world.nodes)
        self.view = ClusterView(
            task=TaskView(number=0, pipeline=0, input_mb=0.0, work_s=np.zeros((kinds, 2)), path_s=np.zeros(kinds)),
            kind=np.array(self._kinds),
            units=np.array([(table.cores, table.accelerators) for table in tables], dtype=np.float64),
            present=np.array(self._member),
            tasks=np.zeros(len(tables)),
            busy=np.zeros((len(tables), 2)),
            memory_gb=np.array([(each.memory_gb, each.accelerators * each.accelerator_memory_gb) for each in tables]),
            used_gb=np.zeros((len(tables), 2)),
            backlog_s=np.zeros((len(tables), 2)),
            committed_s=np.zeros((len(tables), 2)),
            link_free_s=np.zeros(len(tables)),
            link_mb_per_s=np.array([table.link_gbps * _GBPS_IN_MB_PER_S for table in tables]),
            pipelines=len(world.pipelines),
            backlog_gb_s=np.zeros(len(tables)),
        )
        self._memory_gb = np.array([table.memory_gb for table in world.subtasks])
        pipelines = pipeline_steps(world)
        self._tasks = [_Task(pipelines[each]) for each in workload.pipeline]
        count = len(self._tasks)
        self._end_s, self._node = np.full(count, np.inf), np.full(count, -1)
        self._placements = np.zeros(count, dtype=np.int64)
        self._executions: list[Execution] = []
        self._waiting: list[int] = []
        #: By node, (task, step, ready since) of the subtasks that are offered to the node policy at this instant.
        self._ready: dict[int, list[tuple[int, int, float]]] = {}
        #: (seconds, kind of event, three numbers); no two are equal, so their order does not depend on insertion.
        self._agenda: list[tuple[float, int, int, int, int]] = []
        self._agenda += [(float(at_s), _ARRIVES, task, 0, 0) for task, at_s in enumerate(workload.arrival_s)]
        self._agenda += [(at_s, _FAILS, node, 0, 0) for at_s, node in workload.failures]
        self._agenda += [(event.at_s, _CHANGES, i, 0, 0) for i, event in enumerate(world.events)]
        heapq.heapify(self._agenda)

    def run(self) -> Outcome:
        """Simulate until no events are left."""
        agenda = self._agenda
        happens: Mapping[int, Callable[..., None]] = {
            _ENDS: self._ends,
            _DELIVERED: self._delivered,
            _PROFILED: self._profiled,
            _FAILS: self._fails,
            _REPAIRED: self._repaired,
            _CHANGES: self._changes,
            _ARRIVES: self._arrives,
        }
        while agenda:
            now_s = agenda[0][0]
            while agenda and agenda[0][0] == now_s:
                _, kind, *numbers = heapq.heappop(agenda)
                happens[kind](now_s, *numbers)
            self._decide(now_s)
        return Outcome(
            arrival_s=self._workload.arrival_s,
            end_s=self._end_s,
            node=self._node,
            placements=self._placements,
            executions=self._executions,
        )

    def _decide(self, now_s: float) -> None:
        for task in sorted(self._waiting):
            self._place(task, now_s)
        self._waiting = [task for task in self._waiting if self._tasks[task].node < 0]
        for number in sorted(self._ready):
            node = self._nodes[number]
            for task, step, ready_s in sorted(self._ready[number]):
                node.offer(self._work(task, step, ready_s), self._rng)
            node.start(now_s)
            for unit, version, end_s in node.next_ends(now_s):
                heapq.heappush(self._agenda, (end_s, _ENDS, number, unit, version))
            accelerators = sum(1 for unit in node.units[1:] if unit.running)
            self.view.busy[number] = len(node.units[CPU].running), accelerators
            self.view.used_gb[number] = node.view.used_gb, sum(unit.used_gb for unit in node.units[1:])
        self._ready.clear()

    def _place(self, number: int, now_s: float) -> None:
        """Place a task on the node that the policy chooses; it keeps waiting if the policy chooses none."""
        task, workload = self._tasks[number], self._workload
        input_mb = float(workload.input_mb[number])
        estimate_s = workload.estimated.seconds(task.pipeline.types, input_mb)
        if self._calibration is not None:
            estimate_s *= self._calibration.factors[task.pipeline.types]
        self.view.task = task_view(number, task.pipeline, estimate_s, input_mb, self._memory_gb[task.pipeline.types])
        chosen = self.policy.decide(self.view, None, now_s, self._rng)
        if chosen is None:
            return
        kind = self._kinds[chosen]
        if not self.view.present[chosen] or not np.isfinite(self.view.task.path_s[kind]):
            raise ValueError(f"policy {self.policy.name}: node {chosen} cannot take task {number}")
        task.node = self._node[number] = chosen
        task.estimate_s = estimate_s[:, kind].tolist()
        first = workload.first_step[number]
        noise = workload.noise[first : first + len(task.pipeline.types)]
        task.true_s = (workload.true.seconds(task.pipeline.types, input_mb)[:, kind] * noise[:, None]).tolist()
        task.missing = [len(before) for before in task.pipeline.before]
        task.unfinished = len(task.missing)
        task.due_s = self._deadlines.due_s(float(workload.arrival_s[number]), float(self.view.task.path_s[kind]))
        self._placements[number] += 1
        view = self.view
        view.tasks[chosen] += 1
        view.backlog_s[chosen] += view.task.work_s[kind]
        view.backlog_gb_s[chosen] += view.task.work_gb_s[kind]
        own_s = view.task.work_s[kind] / np.maximum(view.units[chosen], 1)
        view.committed_s[chosen] = np.maximum(view.committed_s[chosen], now_s) + own_s
        view.link_free_s[chosen] = max(view.link_free_s[chosen], now_s) + input_mb / view.link_mb_per_s[chosen]
        delivery = (float(view.link_free_s[chosen]), _DELIVERED, number, int(self._placements[number]), 0)
        heapq.heappush(self._agenda, delivery)

    def _work(self, number: int, step: int, ready_s: float) -> Work:
        task = self._tasks[number]
        measured: tuple[tuple[int, float], ...] = ()
        if self._profiler is not None:
            kind = self._kinds[task.node]
            measured = self._profiler.measure(task.pipeline.types[step], kind, task.true_s[step], self._rng)
        table = self._world.subtasks[task.pipeline.types[step]]
        cpu_s, accelerator_s = task.estimate_s[step]
        true_cpu_s, true_accelerator_s = task.true_s[step]
        return Work(
            task=number,
            step=step,
            type=task.pipeline.types[step],
            estimate_s=(cpu_s, accelerator_s),
            true_s=(true_cpu_s, true_accelerator_s),
            memory_gb=table.memory_gb,
            accelerator_memory_gb=table.accelerator_memory_gb,
            ready_s=ready_s,
            input_mb=float(self._workload.input_mb[number]),
            measured=measured,
            due_s=task.due_s,
        )

    # Events -------------------------------------------------------------------------------------------------------

    def _arrives(self, now_s: float, task: int, *_: int) -> None:
        self._waiting.append(task)

    def _delivered(self, now_s: float, number: int, placement: int, _: int) -> None:
        task = self._tasks[number]
        if placement == self._placements[number] and task.node >= 0:
            for step in [step for step, before in enumerate(task.pipeline.before) if not before]:
                self._offer(number, step, now_s)

    def _ends(self, now_s: float, number: int, unit: int, version: int) -> None:
        node = self._nodes[number]
        if node.units[unit].version != version:
            return
        self._ready.setdefault(number, [])
        for work in node.end(unit, now_s):
            self._executions.append(_execution(work, number, unit, now_s, node.units[unit].kind, completed=True))
            self._learn(work, number, node.units[unit].kind, now_s)
            task = self._tasks[work.task]
            faster = CPU if work.estimate_s[CPU] <= work.estimate_s[ACCELERATOR] else ACCELERATOR
            backlog_s = self.view.backlog_s[number, faster] - work.estimate_s[faster]
            self.view.backlog_s[number, faster] = max(backlog_s, 0.0)
            backlog_gb_s = self.view.backlog_gb_s[number] - work.memory_gb * work.estimate_s[faster]
            self.view.backlog_gb_s[number] = max(backlog_gb_s, 0.0)
            for step in task.pipeline.after[work.step]:
                task.missing[step] -= 1
                if not task.missing[step]:
                    self._offer(work.task, step, now_s)
            task.unfinished -= 1
            if not task.unfinished:
                self._end_s[work.task] = now_s
                self.view.tasks[number] -= 1
                self.view.completed += 1
                if isinstance(self.policy, Following):
                    self.policy.completed(work.task, now_s - float(self._workload.arrival_s[work.task]))

    def _offer(self, number: int, step: int, now_s: float) -> None:
        """Offer a ready subtask to its node, after its profiling runs if there are any."""
        if self._profiler is None or not self._profiler.delay_s:
            self._ready.setdefault(self._tasks[number].node, []).append((number, step, now_s))
        else:
            event = (now_s + self._profiler.delay_s, _PROFILED, number, step, int(self._placements[number]))
            heapq.heappush(self._agenda, event)

    def _profiled(self, now_s: float, number: int, step: int, placement: int) -> None:
        task = self._tasks[number]
        if placement == self._placements[number] and task.node >= 0:
            assert self._profiler is not None  # noqa: S101
            self._ready.setdefault(task.node, []).append((number, step, now_s - self._profiler.delay_s))

    def _learn(self, work: Work, number: int, unit: int, now_s: float) -> None:
        if self._calibration is None and self._observer is None:
            return
        kind, estimated = self._kinds[number], self._workload.estimated
        place = work.type, kind, unit
        estimated_s = float(estimated.base_s[place] + estimated.per_mb_s[place] * self._workload.input_mb[work.task])
        actual_s = now_s - work.begin_s
        if self._observer is not None:
            view = self._nodes[number].view
            actual_s = self._observer.observe(view, unit, work, estimated_s, actual_s, work.beside_s)
        if self._calibration is not None:
            self._calibration.observe(*place, estimated_s, actual_s)

    def _fails(self, now_s: float, number: int, *_: int) -> None:
        if not self._up[number]:
            return
        node = self._nodes[number]
        for unit, work in node.clear():
            self._executions.append(_execution(work, number, unit, now_s, node.units[unit].kind, completed=False))
        for lost, task in enumerate(self._tasks):
            if task.node == number and task.unfinished:
                task.node = -1
                self._waiting.append(lost)
        self._ready.pop(number, None)
        self._up[number] = False
        view = self.view
        view.tasks[number], view.link_free_s[number], view.committed_s[number] = 0, now_s, now_s
        view.backlog_s[number], view.busy[number], view.used_gb[number] = 0, 0, 0
        view.backlog_gb_s[number] = 0
        self._count_present(number)
        repair_s = self._world.nodes[self._kinds[number]].repair_s
        heapq.heappush(self._agenda, (now_s + repair_s, _REPAIRED, number, 0, 0))

    def _repaired(self, now_s: float, number: int, *_: int) -> None:
        self._up[number] = True
        self._count_present(number)

    def _changes(self, now_s: float, number: int, *_: int) -> None:
        """Let nodes join, leave or fail: the first `count` of the event's table that can."""
        event = self._world.events[number]
        nodes = [i for i, kind in enumerate(self._kinds) if self._world.nodes[kind].name == event.nodes]
        joins = event.kind == "join"
        for node in [i for i in nodes if self._member[i] != joins and self._up[i]][: event.count]:
            if event.kind == "fail":
                self._fails(now_s, node)
            else:
                self._member[node] = joins
                self._count_present(node)

    def _count_present(self, number: int) -> None:
        self.view.present[number] = self._up[number] and self._member[number]


def _execution(work: Work, node: int, unit: int, now_s: float, kind: int, *, completed: bool) -> Execution:
    return Execution(work.task, work.step, node, unit, work.begin_s, now_s, completed, work.true_s[kind])


def pipeline_steps(world: World) -> list[PipelineSteps]:
    """Return the pipelines of a world, with numbered steps."""
    types = {subtask.name: i for i, subtask in enumerate(world.subtasks)}
    return [_pipeline(i, table, types) for i, table in enumerate(world.pipelines)]


def _pipeline(number: int, table: PipelineTable, types: dict[str, int]) -> PipelineSteps:
    names = table.subtasks
    edges = tuple(pairwise(names)) if table.edges is None else table.edges
    before: list[list[int]] = [[] for _ in names]
    after: list[list[int]] = [[] for _ in names]
    for first, then in sorted({(names.index(first), names.index(then)) for first, then in edges}):
        before[then].append(first)
        after[first].append(then)
    order: list[int] = []
    while len(order) < len(names):
        order += [i for i in range(len(names)) if i not in order and set(before[i]) <= set(order)]
    return PipelineSteps(number, [types[name] for name in names], before, after, order)


def task_view(number: int, pipeline: PipelineSteps, estimate_s: Floats, input_mb: float, memory_gb: Floats) -> TaskView:
    """Return a cluster policy's view of a task; `estimate_s` has shape (n, K, 2), `memory_gb` (n,)."""
    best_s = estimate_s.min(axis=2)
    on_cpu = estimate_s[:, :, CPU] <= estimate_s[:, :, ACCELERATOR]
    work_s = np.stack([np.where(on_cpu, best_s, 0).sum(axis=0), np.where(on_cpu, 0, best_s).sum(axis=0)], axis=1)
    end_s = np.zeros_like(best_s)
    for step in pipeline.order:
        before = pipeline.before[step]
        end_s[step] = best_s[step] + (end_s[before].max(axis=0) if before else 0)
    return TaskView(
        number=number,
        pipeline=pipeline.number,
        input_mb=input_mb,
        work_s=work_s,
        path_s=end_s.max(axis=0),
        memory_gb=float(memory_gb.max()),
        work_gb_s=memory_gb @ best_s,
    )


def simulate(world: World, workload: Workload, policy: ClusterPolicy, seed: int) -> Outcome:
    """Simulate the workload and return the outcome."""
    return Simulation(world, workload, policy, seed).run()
