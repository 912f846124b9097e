"""Simulated runs of stacks (a cluster policy and a node policy), and the values that the figures need from them."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.cli.sim.cluster import make_law
from fpga_pool.conf.policies import tuned_policy
from fpga_pool.core.types import Floats
from fpga_pool.experiments.figures.figure import Settings
from fpga_pool.sim.cluster.bound import summary
from fpga_pool.sim.cluster.simulator import Outcome, Simulation, pipeline_steps
from fpga_pool.sim.cluster.tables import EventTable, World, read_world
from fpga_pool.sim.cluster.workload import Workload, all_nodes, draw

WORLD = Path(__file__).parent / "paper.toml"
#: Tasks of a run (section 5.3) and of a run that shows convergence (section 5.2); tasks per minute; worker nodes.
TASKS, CONVERGENCE_TASKS, PER_MINUTE, NODES = 1500, 3000, 50, 11
#: Number of times at which use is sampled, and the shares of the time of arrivals between which they lie.
TIMES, STABLE = 40, (0.3, 1.0)
#: Offset of the seeds of pre-training, so that they differ from those of all runs.
_OTHER_SEED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The policies that decide, on both levels."""

    cluster: str
    node: str
    corun: bool = True
    admission: bool = True
    #: Whether the cluster policy begins with the weights of another run of the same length.
    pretrained: bool = False

    def policy(self) -> Any:
        """Return the cluster policy, which includes the node policy."""
        values = {"node": self.node, "corun": self.corun, "admission": self.admission}
        return tuned_policy("cluster", self.cluster, {}, values)


#: The paper's four methods (section 5.3), and its node policy with a cluster policy that uses estimates.
PAPER, RANDOM, ECT, PATS, IAWP = "ldwp + iawp", "random", "ect", "pats", "ect_open + iawp"
STACKS: Mapping[str, Stack] = {
    PAPER: Stack(cluster="ldwp", node="iawp", pretrained=True),
    RANDOM: Stack(cluster="random", node="random"),
    ECT: Stack(cluster="ect", node="ect"),
    PATS: Stack(cluster="pats", node="pats"),
    IAWP: Stack(cluster="ect_open", node="iawp"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The workload of a stack and its cluster; the defaults are the paper's values."""

    tasks: int = TASKS
    per_minute: float = PER_MINUTE
    nodes: int = NODES
    #: Input of each task; None = as in the world.
    input_mb: float | None = None
    #: (seconds, whether nodes join (True) or leave (False), how many); these nodes are additional to `nodes`.
    changes: tuple[tuple[float, bool, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One run and its world."""

    world: World
    workload: Workload
    outcome: Outcome
    #: The cluster policy in its final state.
    policy: Any

    def throughput(self, begin_s: float, end_s: float, node: int | None = None) -> float:
        """Return the tasks completed per minute in an interval, on one node or on all."""
        done = (self.outcome.end_s >= begin_s) & (self.outcome.end_s < end_s)
        if node is not None:
            done &= self.outcome.node == node
        return float(done.sum() * 60 / (end_s - begin_s))

    @property
    def last_s(self) -> float:
        """Return the arrival time of the last task."""
        return float(self.workload.arrival_s[-1])

    @property
    def end_s(self) -> float:
        """Return the time at which all executions had ended."""
        return max(each.end_s for each in self.outcome.executions) + 1e-6

    def mean_response_s(self) -> float:
        """Return the mean response time of all completed tasks."""
        done = np.isfinite(self.outcome.end_s)
        return float((self.outcome.end_s - self.workload.arrival_s)[done].mean())

    def usage(self, at_s: Floats) -> Floats:
        """Return the use of cores, host memory, accelerators and their memory at the given times, (times, nodes, 4).

        An accelerator that executes at least one subtask is in use.
        """
        steps = pipeline_steps(self.world)
        kinds = [self.world.nodes[kind] for kind in all_nodes(self.world)]
        used = np.zeros((len(at_s), len(kinds), 4))
        busy: dict[tuple[int, int], Any] = {}
        for each in self.outcome.executions:
            during = (at_s >= each.begin_s) & (at_s < each.end_s)
            subtask = self.world.subtasks[steps[self.workload.pipeline[each.task]].types[each.step]]
            used[during, each.node, 1] += subtask.memory_gb
            if each.unit:
                used[during, each.node, 3] += subtask.accelerator_memory_gb
                busy[each.node, each.unit] = busy.get((each.node, each.unit), False) | during
            else:
                used[during, each.node, 0] += 1
        for (node, _), during in busy.items():
            used[during, node, 2] += 1
        totals = np.array(
            [(t.cores, t.memory_gb, t.accelerators, t.accelerators * t.accelerator_memory_gb) for t in kinds]
        )
        shares: Floats = used / totals
        return shares

    def stable_usage(self) -> Floats:
        """Return `usage` at `TIMES` times of the stable part of the run."""
        first_s, last_s = (share * self.last_s for share in STABLE)
        return self.usage(np.linspace(first_s, last_s, TIMES))


@lru_cache(maxsize=512)
def run(case: Case, name: str, seed: int) -> Run:
    """Return one run of a stack; cached for figures that show the same run."""
    return simulated(case, STACKS[name], seed)


def of_each_stack(case: Case, seed: int, settings: Settings) -> Iterator[tuple[str, Run]]:
    """Yield the name of each stack and its run of a case, scaled by the settings."""
    case = scaled(case, settings)
    for name in STACKS:
        yield name, run(case, name, seed)


def results(path: Path, stack: Stack, seed: int, *, load: float = 1.0, tasks: int | None = None) -> Mapping[str, float]:
    """Return the summary of one run of a scenario; `tasks`, if given, overrides the number in its first stream."""
    world = read_world(path, make_law)
    if tasks is not None:
        first, *others = world.arrivals
        world = dataclasses.replace(world, arrivals=(dataclasses.replace(first, tasks=tasks), *others))
    workload = draw(world, seed, load)
    return summary(world, workload, Simulation(world, workload, stack.policy(), seed).run())


def scaled(case: Case, settings: Settings) -> Case:
    """Return a case with its number of tasks scaled by the settings."""
    return dataclasses.replace(case, tasks=settings.scaled(case.tasks))


def world_of(case: Case) -> World:
    """Return the paper's cluster and pipelines for a case."""
    world = read_world(WORLD, make_law)
    # One node of each kind in turn, so that any number of nodes is a mixture.
    tables, order = list(world.nodes), []
    counts = [table.count for table in tables]
    while any(counts):
        order += [kind for kind, count in enumerate(counts) if count]
        counts = [max(count - 1, 0) for count in counts]
    most = max((count for _, joins, count in case.changes if joins), default=0)
    chosen, late = order[: case.nodes], order[case.nodes : case.nodes + most]
    nodes = [
        dataclasses.replace(table, count=chosen.count(kind)) for kind, table in enumerate(tables) if kind in chosen
    ]
    nodes += [dataclasses.replace(tables[kind], name=f"late{i}", count=1, present=False) for i, kind in enumerate(late)]
    events = tuple(
        EventTable(at_s=at_s, kind="join" if joins else "leave", nodes=f"late{i}", count=1)
        for at_s, joins, count in case.changes
        for i in range(count)
    )
    size = world.arrivals[0].input_mb
    if case.input_mb is not None:
        size = dataclasses.replace(size, low=case.input_mb, high=case.input_mb)
    arrivals = (dataclasses.replace(world.arrivals[0], tasks=case.tasks, per_minute=case.per_minute, input_mb=size),)
    return dataclasses.replace(world, nodes=tuple(nodes), arrivals=arrivals, events=events)


def simulated(case: Case, stack: Stack, seed: int) -> Run:
    """Return one run of any stack."""
    policy = stack.policy()
    if stack.pretrained:
        before = dataclasses.replace(case, changes=())
        policy = policy.with_weights(_weights(before, stack, seed))
    world = world_of(case)
    workload = draw(world, seed)
    simulation = Simulation(world, workload, policy, seed)
    outcome = simulation.run()
    return Run(world=world, workload=workload, outcome=outcome, policy=simulation.policy)


@lru_cache(maxsize=64)
def _weights(case: Case, stack: Stack, seed: int) -> Mapping[str, Floats]:
    """Return the weights after a run that began with random ones and had other arrivals."""
    untrained = dataclasses.replace(stack, pretrained=False)
    weights: Mapping[str, Floats] = simulated(case, untrained, _OTHER_SEED + seed).policy.weights
    return weights
