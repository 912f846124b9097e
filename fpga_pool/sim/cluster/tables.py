"""Tables of a cluster scenario: their keys, the values that each key accepts, and the defaults."""

import graphlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster.laws import Law
from fpga_pool.sim.scenario.values import (
    AT_LEAST_ONE,
    COUNT,
    COUNT_OF_SOME,
    FLAG,
    MIX,
    NAME,
    POSITIVE,
    POSITIVE_SPREAD,
    SECONDS,
    TEXT,
    Kind,
    Spread,
    choice,
    key,
    naming,
    number,
    read_table,
    read_toml,
    require_known,
    share,
    shown,
    whole,
)


def _seconds(value: Any) -> Mapping[str, tuple[float, float]]:
    if not isinstance(value, Mapping) or not value:
        raise TypeError
    times = {}
    for name, time in value.items():
        base, per_mb = time if isinstance(time, list) else (time, 0)
        times[NAME.read(name)] = (SECONDS.read(base), SECONDS.read(per_mb))
        if not any(times[name]):
            raise ValueError
    return times


def _demands(value: Any) -> Mapping[str, float]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {NAME.read(name): SECONDS.read(demand) for name, demand in value.items()}


def _names(value: Any) -> tuple[str, ...]:
    names = tuple(map(NAME.read, value)) if isinstance(value, list) else ()
    if not names or len(set(names)) < len(names):
        raise ValueError
    return names


def _edges(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple((NAME.read(first), NAME.read(then)) for first, then in value)


#: Numbers that are used as divisors.
_FACTOR = number(1e-6, 1e6)
#: Standard deviations of logarithms; a factor beyond exp(10) is implausible as an error of an estimate.
_DEVIATION = number(0, 10)
_INPUT = Spread(100.0, 100.0)
_GIGABYTES = Kind("gigabytes, 0 or more", SECONDS.read)
_UNIT_SECONDS = Kind("a table: kind of unit = seconds, or [seconds, seconds per MB], not both 0", _seconds)
_DEMANDS = Kind("a table: resource = share, 0 or more", _demands)
_STEPS = Kind("a list of different names of subtasks", _names)
_EDGES = Kind("a list of [subtask, subtask that needs its output]", _edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTable:
    """The table `[run]`."""

    seed: int = key(COUNT, 0)
    warm_up_s: float = key(SECONDS, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatesTable:
    """The table `[estimates]`."""

    error: float = key(_DEVIATION, 0.0)
    noise: float = key(_DEVIATION, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """A table `[nodes.NAME]`: one kind of identical nodes."""

    name: str
    count: int = key(whole(1), 1)
    present: bool = key(FLAG, True)
    cores: int = key(COUNT_OF_SOME)
    speed: float = key(_FACTOR, 1.0)
    memory_gb: float = key(POSITIVE)
    accelerator: str = key(NAME, "")
    accelerators: int = key(whole(0), 0)
    accelerator_memory_gb: float = key(_GIGABYTES, 0.0)
    places: int = key(COUNT_OF_SOME, 4)
    link_gbps: float = key(_FACTOR, 1.0)
    fails_after_s: float = key(POSITIVE, math.inf, shown_default="never")
    repair_s: float = key(POSITIVE, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskTable:
    """A table `[subtasks.NAME]`: a type of subtask."""

    name: str
    seconds: Mapping[str, tuple[float, float]] = key(_UNIT_SECONDS)
    memory_gb: float = key(_GIGABYTES, 0.0)
    accelerator_memory_gb: float = key(_GIGABYTES, 0.0)
    demands: Mapping[str, float] | None = key(_DEMANDS, None)
    cpu_demands: Mapping[str, float] | None = key(_DEMANDS, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTable:
    """A table `[pipelines.NAME]`."""

    name: str
    subtasks: tuple[str, ...] = key(_STEPS)
    edges: tuple[tuple[str, str], ...] | None = key(_EDGES, None, shown_default="a chain")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTable:
    """A table `[[arrivals]]`: a stream of tasks."""

    pipelines: Mapping[str, float] | None = key(MIX, None, shown_default="all, equally")
    tasks: int = key(whole(1), 0, shown_default="required without a trace")
    per_minute: float = key(_FACTOR, 0.0, shown_default="required without a trace")
    begin_s: float = key(SECONDS, 0.0)
    input_mb: Spread = key(POSITIVE_SPREAD, _INPUT, shown_default="100")  # noqa: RUF009
    spacing: str = key(choice("poisson", "even"), "poisson")
    together: int = key(COUNT_OF_SOME, 1)
    persistence: float = key(share(0), 0.0)
    burst_factor: float = key(AT_LEAST_ONE, 1.0)
    burst_s: float = key(POSITIVE, 30.0)
    calm_s: float = key(POSITIVE, 120.0)
    trace: str = key(TEXT, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTable:
    """A table `[[events]]`: nodes that join, leave or fail."""

    at_s: float = key(SECONDS)
    kind: str = key(choice("join", "leave", "fail"))
    nodes: str = key(NAME)
    count: int = key(COUNT_OF_SOME, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The content of a cluster scenario."""

    path: Path
    run: RunTable
    estimates: EstimatesTable
    nodes: tuple[NodeTable, ...]
    subtasks: tuple[SubtaskTable, ...]
    pipelines: tuple[PipelineTable, ...]
    arrivals: tuple[ArrivalTable, ...]
    events: tuple[EventTable, ...]
    #: Interference laws of accelerators and of cores; None = no interference.
    accelerator_law: Law | None
    cpu_law: Law | None


# ---- Reading; everything is checked before the simulation begins

_NAMED: Mapping[str, Any] = {"nodes": NodeTable, "subtasks": SubtaskTable, "pipelines": PipelineTable}
_KEYS = ("format_version", "run", "estimates", "interference", *_NAMED, "arrivals", "events")

#: Returns the law with a name, made with the parameters; raises InvalidInput if either is not valid.
MakeLaw = Callable[[str, Mapping[str, Any]], Law]

TableT = TypeVar("TableT")


def read_world(path: Path, make_law: MakeLaw) -> World:
    """Return the cluster scenario in a TOML file; raises InvalidInput, which names the file, table and key."""
    content = read_toml(path)
    with naming(path):
        world = _world(path, content, make_law)
        _check(world)
    return world


def _world(path: Path, content: Mapping[str, Any], make_law: MakeLaw) -> World:
    for name in content:
        if name not in _KEYS:
            raise InvalidInput(f"{name}: unknown key; keys are {', '.join(_KEYS)}")
    laws = _table(content, "interference")
    for name in laws:
        if name not in ("accelerator", "cpu"):
            raise InvalidInput(f"interference: {name}: unknown key; keys are accelerator, cpu")
    named = {
        name: tuple(read_table(table, each, f"{name}.{key}", name=key) for key, each in _table(content, name).items())
        for name, table in _NAMED.items()
    }
    for name, tables in named.items():
        if not tables:
            raise InvalidInput(f"{name}: missing; expected one table [{name}.NAME] at least")
    arrivals = _list(content, "arrivals", ArrivalTable)
    if not arrivals:
        raise InvalidInput("arrivals: missing; expected one table [[arrivals]] at least")
    return World(
        path=path,
        run=read_table(RunTable, content.get("run", {}), "run"),
        estimates=read_table(EstimatesTable, content.get("estimates", {}), "estimates"),
        arrivals=arrivals,
        events=_list(content, "events", EventTable),
        accelerator_law=_law(laws, "accelerator", make_law),
        cpu_law=_law(laws, "cpu", make_law),
        **named,
    )


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, Mapping):
        raise InvalidInput(f"{name}: expected a table, found {shown(table)}")
    return table


def _list(content: Mapping[str, Any], name: str, table: type[TableT]) -> tuple[TableT, ...]:
    tables = content.get(name, [])
    if not isinstance(tables, list):
        raise InvalidInput(f"{name}: expected a list of tables [[{name}]], found {shown(tables)}")
    return tuple(read_table(table, each, f"{name}[{i}]") for i, each in enumerate(tables))


def _law(laws: Mapping[str, Any], unit: str, make_law: MakeLaw) -> Law | None:
    if unit not in laws:
        return None
    place = f"interference.{unit}"
    parameters = dict(_table(laws, unit))
    name = parameters.pop("law", None)
    if not isinstance(name, str):
        raise InvalidInput(f"{place}: law: expected the name of an interference law, found {shown(name)}")
    try:
        return make_law(name, parameters)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


def _check(world: World) -> None:
    """Raise InvalidInput if a name is unknown, or a number contradicts another one."""
    subtasks = {table.name for table in world.subtasks}
    kinds = {"cpu", *(node.accelerator for node in world.nodes if node.accelerator)}
    for node in world.nodes:
        if node.accelerator == "cpu":
            raise InvalidInput(f"nodes.{node.name}: accelerator: cpu is the name of the cores")
        if bool(node.accelerator) != bool(node.accelerators):
            raise InvalidInput(f"nodes.{node.name}: accelerator and accelerators: expected both or neither")
    for subtask in world.subtasks:
        for kind in subtask.seconds:
            require_known(kind, kinds, f"subtasks.{subtask.name}: seconds", "kind of unit of the nodes")
    for pipeline in world.pipelines:
        for name in pipeline.subtasks:
            require_known(name, subtasks, f"pipelines.{pipeline.name}: subtasks", "subtask")
        _check_edges(pipeline)
    pipelines = {table.name for table in world.pipelines}
    for i, arrival in enumerate(world.arrivals):
        for name in arrival.pipelines or ():
            require_known(name, pipelines, f"arrivals[{i}]: pipelines", "pipeline")
        if bool(arrival.trace) == bool(arrival.tasks) or bool(arrival.tasks) != bool(arrival.per_minute):
            raise InvalidInput(f"arrivals[{i}]: expected either tasks and per_minute, or a trace")
    for i, event in enumerate(world.events):
        nodes = {node.name: node for node in world.nodes}
        require_known(event.nodes, nodes, f"events[{i}]: nodes", "table of nodes")
        if event.count > nodes[event.nodes].count:
            raise InvalidInput(f"events[{i}]: count: there are {nodes[event.nodes].count} nodes {event.nodes!r}")


def _check_edges(pipeline: PipelineTable) -> None:
    edges = pipeline.edges or ()
    for edge in edges:
        for name in edge:
            require_known(name, pipeline.subtasks, f"pipelines.{pipeline.name}: edges", "subtask of this pipeline")
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for first, then in edges:
        order.add(then, first)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        raise InvalidInput(f"pipelines.{pipeline.name}: edges: a cycle: {' -> '.join(error.args[1])}") from None


def read_trace(path: Path, pipelines: Mapping[str, int]) -> list[tuple[float, int, float]]:
    """Return (arrival in seconds, pipeline, input in MB) of each line `arrival_s,pipeline,input_mb` of a trace."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from None
    header = "arrival_s,pipeline,input_mb"
    if not lines or lines[0] != header:
        raise InvalidInput(f"{path}: line 1: expected {header}")
    tasks = []
    for place, line in enumerate(lines[1:], 2):
        try:
            arrival, pipeline, size = line.split(",")
            arrival_s, input_mb = SECONDS.read(float(arrival)), POSITIVE.read(float(size))
        except ValueError:
            raise InvalidInput(f"{path}: line {place}: expected seconds, pipeline, MB, found {shown(line)}") from None
        require_known(pipeline, pipelines, f"{path}: line {place}", "pipeline")
        tasks.append((arrival_s, pipelines[pipeline], input_mb))
    if not tasks:
        raise InvalidInput(f"{path}: expected a task at least")
    return tasks
