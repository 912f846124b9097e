"""The random inputs of a cluster simulation that do not depend on the policy: arrivals, durations, estimates, failures.

Each has a separate random stream, so that two policies with the same seed are simulated under the same conditions.
"""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.cluster.views import ACCELERATOR, CPU
from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster.tables import ArrivalTable, NodeTable, SubtaskTable, World, read_trace
from fpga_pool.sim.scenario.values import MOST_THINGS

#: Random streams.
_ARRIVALS, _NOISE, _ERRORS, _FAILURES = range(4)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """Seconds of each type of subtask alone: base_s + per_mb_s * input, (S, K, 2) each; infinite = cannot run."""

    base_s: Floats
    per_mb_s: Floats

    def seconds(self, types: list[int], input_mb: float) -> Floats:
        """Return the seconds of some types for one input, shape (len(types), K, 2)."""
        seconds: Floats = self.base_s[types] + self.per_mb_s[types] * input_mb
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """T tasks in order of arrival, and the times that their subtasks take on K kinds of nodes."""

    arrival_s: Floats
    pipeline: Ints
    input_mb: Floats
    #: (T,) index in `noise` of the factor of a task's first step.
    first_step: Ints
    #: Factor of the time of each step of each task, relative to the true time of its type; mean 1.
    noise: Floats
    true: Times
    estimated: Times
    #: (seconds, number of the node) of each random failure.
    failures: list[tuple[float, int]]


def draw(world: World, seed: int, load: float = 1.0) -> Workload:
    """Return the world's workload for this seed, with the times between arrivals divided by `load`.

    Raises InvalidInput if a trace is not valid, or if there are too many bursts or failures.
    """
    tasks = sorted(
        (table.begin_s + (at_s - table.begin_s) / load, pipeline, input_mb)
        for i, table in enumerate(world.arrivals)
        for at_s, pipeline, input_mb in _arrivals(world, table, seed, i)
    )
    last_s = tasks[-1][0]
    steps = np.array([len(pipeline.subtasks) for pipeline in world.pipelines])
    pipeline = np.array([task[1] for task in tasks])
    ends = np.cumsum(steps[pipeline])
    true = _times(world)
    error = _lognormal(np.random.default_rng([seed, _ERRORS]), world.estimates.error, true.base_s.shape)
    return Workload(
        arrival_s=np.array([task[0] for task in tasks]),
        pipeline=pipeline,
        input_mb=np.array([task[2] for task in tasks]),
        first_step=ends - steps[pipeline],
        noise=_lognormal(np.random.default_rng([seed, _NOISE]), world.estimates.noise, (int(ends[-1]),)),
        true=true,
        estimated=Times(base_s=true.base_s * error, per_mb_s=true.per_mb_s * error),
        failures=_failures(world, seed, last_s),
    )


def all_nodes(world: World) -> list[int]:
    """Return the kind of each node, which is the index of its table."""
    return [kind for kind, table in enumerate(world.nodes) for _ in range(table.count)]


def _arrivals(world: World, table: ArrivalTable, seed: int, number: int) -> list[tuple[float, int, float]]:
    """Return arrival, pipeline and input of each task of a stream."""
    index = {pipeline.name: i for i, pipeline in enumerate(world.pipelines)}
    if table.trace:
        shift = table.begin_s
        return [
            (at_s + shift, pipeline, input_mb)
            for at_s, pipeline, input_mb in read_trace(world.path.parent / table.trace, index)
        ]
    rng = np.random.default_rng([seed, _ARRIVALS, number])
    instants = -(-table.tasks // table.together)
    gaps = rng.exponential(size=instants) if table.spacing == "poisson" else np.ones(instants)
    at_s = _in_bursts(table, np.cumsum(gaps), rng, f"{world.path}: arrivals[{number}]")
    at = np.repeat(at_s, table.together)[: table.tasks]
    weights = table.pipelines or dict.fromkeys(index, 1.0)
    chances = np.array(list(weights.values()))
    drawn = rng.choice([index[name] for name in weights], size=table.tasks, p=chances / chances.sum())
    # A task that repeats the pipeline of the previous task uses that task's draw.
    own = rng.random(table.tasks) >= table.persistence
    own[0] = True
    drawn = drawn[np.maximum.accumulate(np.where(own, np.arange(table.tasks), 0))]
    sizes = rng.uniform(table.input_mb.low, table.input_mb.high, table.tasks)
    return list(zip(at.tolist(), drawn.tolist(), sizes.tolist(), strict=True))


def _in_bursts(table: ArrivalTable, due: Floats, rng: np.random.Generator, place: str) -> Floats:
    """Return the seconds at which the expected number of arrivals reaches each of `due`.

    Calm periods and bursts alternate; their lengths are exponentially distributed.
    """
    per_s = table.per_minute / 60 / table.together
    if table.burst_factor == 1:
        at: Floats = table.begin_s + due / per_s
        return at
    ends, expected = [table.begin_s], [0.0]
    while expected[-1] < due[-1]:
        if len(ends) > 2 * MOST_THINGS:
            raise InvalidInput(f"{place}: more than {MOST_THINGS:,} bursts until the last arrival")
        for length_s, factor in ((table.calm_s, 1.0), (table.burst_s, table.burst_factor)):
            stretch_s = rng.exponential(length_s)
            ends.append(ends[-1] + stretch_s)
            expected.append(expected[-1] + stretch_s * per_s * factor)
    return np.interp(due, expected, ends)


def _times(world: World) -> Times:
    shape = (len(world.subtasks), len(world.nodes), 2)
    base_s, per_mb_s = np.full(shape, np.inf), np.zeros(shape)
    for s, subtask in enumerate(world.subtasks):
        for k, node in enumerate(world.nodes):
            for unit, kind in ((CPU, "cpu"), (ACCELERATOR, node.accelerator)):
                if kind in subtask.seconds and _has_memory(subtask, node, unit):
                    base_s[s, k, unit], per_mb_s[s, k, unit] = np.array(subtask.seconds[kind]) / node.speed
    return Times(base_s=base_s, per_mb_s=per_mb_s)


def _has_memory(subtask: SubtaskTable, node: NodeTable, unit: int) -> bool:
    enough = subtask.memory_gb <= node.memory_gb
    return enough and (unit == CPU or subtask.accelerator_memory_gb <= node.accelerator_memory_gb)


def _lognormal(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> Floats:
    """Return log-normally distributed factors of mean 1."""
    return rng.lognormal(-(sigma**2) / 2, sigma, shape)


def _failures(world: World, seed: int, until_s: float) -> list[tuple[float, int]]:
    failures: list[tuple[float, int]] = []
    for number, kind in enumerate(all_nodes(world)):
        table = world.nodes[kind]
        rng = np.random.default_rng([seed, _FAILURES, number])
        at_s = rng.exponential(table.fails_after_s) if np.isfinite(table.fails_after_s) else np.inf
        while at_s < until_s:
            if len(failures) == MOST_THINGS:
                place = f"{world.path}: nodes.{table.name}: fails_after_s"
                raise InvalidInput(f"{place}: more than {MOST_THINGS:,} failures until the last arrival")
            failures.append((at_s, number))
            at_s += table.repair_s + rng.exponential(table.fails_after_s)
    return failures
