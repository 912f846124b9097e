"""Random worlds for training learned policies, and different ones for evaluating them.

A world is determined by its suite and its number.  No world belongs to two suites; the suites for training, `train`
and `validation`, have one family of interference laws.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fpga_pool.sim.cluster.bound import bounds
from fpga_pool.sim.cluster.laws import Bottleneck, Law, Pressure, Saturation
from fpga_pool.sim.cluster.tables import (
    ArrivalTable,
    EstimatesTable,
    NodeTable,
    PipelineTable,
    RunTable,
    SubtaskTable,
    World,
)
from fpga_pool.sim.cluster.workload import draw
from fpga_pool.sim.scenario.values import Spread

_RESOURCES = ("sm", "dram", "l2", "pcie")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Ranges from which the worlds of a suite are drawn."""

    #: Random stream.
    stream: int
    #: Rate of arrivals, as a fraction of the bound of the throughput.
    load: tuple[float, float] = (0.25, 0.6)
    #: Number of nodes of all kinds (at least one of each), and number of kinds.
    nodes: tuple[int, int] = (5, 14)
    kinds: tuple[int, int] = (2, 4)
    cores: tuple[int, int] = (4, 12)
    accelerators: tuple[int, int] = (1, 4)
    #: Decimal logarithm of the speed of a kind of node.
    speed: tuple[float, float] = (-0.15, 0.15)
    memory_gb: tuple[float, float] = (8.0, 32.0)
    #: Probability that a kind of node, other than the first, has no accelerators.
    without: float = 0.1
    laws: tuple[str, ...] = ("saturation",)
    error: tuple[float, float] = (0.0, 0.6)


_TRAIN = Suite(stream=0, load=(0.25, 0.9))

#: Suites by name.
SUITES: Mapping[str, Suite] = {
    "train": _TRAIN,
    "validation": replace(_TRAIN, stream=1),
    "held_out": Suite(stream=2),
    "overload": Suite(stream=3, load=(0.8, 1.1)),
    "unseen_kinds": Suite(
        stream=4,
        kinds=(3, 6),
        cores=(2, 32),
        accelerators=(1, 8),
        speed=(-0.4, 0.4),
        memory_gb=(5.0, 96.0),
        without=0.3,
    ),
    "unseen_law": Suite(stream=5, laws=("pressure", "bottleneck")),
}


def random_world(suite: str, number: int, tasks: int = 300) -> World:
    """Return a world of a suite, always the same for the same arguments; raises KeyError if there is no such suite."""
    ranges = SUITES[suite]
    rng = np.random.default_rng([ranges.stream, number])
    nodes = _nodes(ranges, rng)
    subtasks = _subtasks(nodes, rng)
    pipelines = _pipelines(subtasks, rng)
    bursts = float(rng.choice([1.0, 1.0, 3.0]))
    arrivals = ArrivalTable(
        tasks=tasks,
        per_minute=60.0,
        input_mb=Spread(10.0, float(rng.uniform(100, 400))),
        together=int(rng.choice([1, 1, 1, 4])),
        persistence=float(rng.choice([0.0, 0.0, 0.7])),
        burst_factor=bursts,
    )
    world = World(
        path=Path(f"{suite}-{number}"),
        run=RunTable(seed=0),
        estimates=EstimatesTable(error=float(rng.uniform(*ranges.error)), noise=0.12),
        nodes=nodes,
        subtasks=subtasks,
        pipelines=pipelines,
        arrivals=(arrivals,),
        events=(),
        accelerator_law=_law(str(rng.choice(ranges.laws)), rng),
        cpu_law=None,
    )
    rate = bounds(world, draw(world, 0)).per_minute * float(rng.uniform(*ranges.load))
    # `rate` is the mean over bursts and calm periods, which last 30 and 120 s on average.
    arrivals = replace(arrivals, per_minute=rate / ((30 * bursts + 120) / 150))
    # The lengths of queues have settled after a fifth of the run.
    run = RunTable(seed=0, warm_up_s=round(0.2 * tasks / rate * 60, 1))
    return replace(world, arrivals=(arrivals,), run=run)


def _law(name: str, rng: np.random.Generator) -> Law:
    if name == "pressure":
        return Pressure(weight=float(rng.uniform(0.5, 1.5)))
    if name == "bottleneck":
        return Bottleneck()
    return Saturation(exponent=float(rng.uniform(1.0, 1.8)))


def _nodes(ranges: Suite, rng: np.random.Generator) -> tuple[NodeTable, ...]:
    kinds = int(rng.integers(ranges.kinds[0], ranges.kinds[1] + 1))
    total = max(int(rng.integers(ranges.nodes[0], ranges.nodes[1] + 1)), kinds)
    counts = 1 + rng.multinomial(total - kinds, np.full(kinds, 1 / kinds))
    tables = []
    for kind in range(kinds):
        accelerators = int(rng.integers(ranges.accelerators[0], ranges.accelerators[1] + 1))
        if kind and rng.random() < ranges.without:
            accelerators = 0
        tables.append(
            NodeTable(
                name=f"n{kind}",
                count=int(counts[kind]),
                cores=int(rng.integers(ranges.cores[0], ranges.cores[1] + 1)),
                speed=float(10 ** rng.uniform(*ranges.speed)),
                # The first kind has memory for every type of subtask.
                memory_gb=float(rng.uniform(*ranges.memory_gb)) if kind else ranges.memory_gb[1],
                accelerator=f"x{kind % 3}" if accelerators else "",
                accelerators=accelerators,
                accelerator_memory_gb=float(rng.uniform(6, 16)) if accelerators else 0.0,
                places=int(rng.integers(2, 5)),
            )
        )
    return tuple(tables)


def _subtasks(nodes: tuple[NodeTable, ...], rng: np.random.Generator) -> tuple[SubtaskTable, ...]:
    kinds = sorted({node.accelerator for node in nodes if node.accelerator})
    tables = []
    for number in range(int(rng.integers(8, 15))):
        base, per_mb = float(rng.uniform(0.3, 2)), float(10 ** rng.uniform(-2, -0.1))
        seconds = {"cpu": (base, per_mb)}
        accelerated = rng.random() < 0.7
        speedup = 10 ** rng.uniform(0.1, 1.1)
        for kind in kinds if accelerated else ():
            factor = speedup * 10 ** rng.uniform(-0.2, 0.2)
            seconds[kind] = (base / 2, per_mb / factor)
        chosen = rng.random(len(_RESOURCES)) < 0.6
        demands = {name: float(rng.uniform(0.1, 0.9)) for name, has in zip(_RESOURCES, chosen, strict=True) if has}
        tables.append(
            SubtaskTable(
                name=f"s{number}",
                seconds=seconds,
                memory_gb=float(rng.uniform(0.25, 2.5)),
                accelerator_memory_gb=float(rng.uniform(0.5, 2.5)) if accelerated else 0.0,
                demands=demands if accelerated else None,
            )
        )
    return tuple(tables)


def _pipelines(subtasks: tuple[SubtaskTable, ...], rng: np.random.Generator) -> tuple[PipelineTable, ...]:
    names = [table.name for table in subtasks]
    tables = []
    for number in range(int(rng.integers(2, 5))):
        steps = [names[i] for i in rng.permutation(len(names))[: int(rng.integers(3, 8))]]
        edges = None
        if rng.random() < 0.5:  # each step needs one of the two previous steps
            edges = tuple((steps[max(i - int(rng.integers(1, 3)), 0)], steps[i]) for i in range(1, len(steps)))
        tables.append(PipelineTable(name=f"p{number}", subtasks=tuple(steps), edges=edges))
    return tuple(tables)
