"""Cluster scenarios: read, and checked whole before anything happens."""

import graphlib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster.laws import Law
from fpga_pool.sim.cluster.tables import (
    ArrivalTable,
    EstimatesTable,
    EventTable,
    NodeTable,
    PipelineTable,
    RunTable,
    SubtaskTable,
    World,
)
from fpga_pool.sim.scenario.values import read_table, shown

FORMAT_VERSION = 1
_NAMED: Mapping[str, Any] = {"nodes": NodeTable, "subtasks": SubtaskTable, "pipelines": PipelineTable}
_KEYS = ("format_version", "run", "estimates", "interference", *_NAMED, "arrivals", "events")

#: Returns the law of a name, made with parameters.  InvalidInput says what is wrong with either.
MakeLaw = Callable[[str, Mapping[str, Any]], Law]

TableT = TypeVar("TableT")


def read_world(path: Path, make_law: MakeLaw) -> World:
    """Return the cluster scenario in a TOML file; InvalidInput names the file, the table, the key and what is right."""
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also what is no UTF-8
        raise InvalidInput(f"{path}: {error}") from None
    try:
        world = _world(path, content, make_law)
        _check(world)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return world


def _world(path: Path, content: Mapping[str, Any], make_law: MakeLaw) -> World:
    for name in content:
        if name not in _KEYS:
            raise InvalidInput(f"{name}: unknown key; keys are {', '.join(_KEYS)}")
    version = content.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise InvalidInput(f"format_version: expected {FORMAT_VERSION}, found {shown(version)}")
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
    """Raise InvalidInput where a name is that of nothing, or a number makes no sense beside another one."""
    subtasks = {table.name for table in world.subtasks}
    kinds = {"cpu", *(node.accelerator for node in world.nodes if node.accelerator)}
    for node in world.nodes:
        if node.accelerator == "cpu":
            raise InvalidInput(f"nodes.{node.name}: accelerator: cpu is the name of the cores")
        if bool(node.accelerator) != bool(node.accelerators):
            raise InvalidInput(f"nodes.{node.name}: accelerator and accelerators: expected both or neither")
    for subtask in world.subtasks:
        for kind in subtask.seconds:
            _known(f"subtasks.{subtask.name}: seconds", kind, kinds, "kind of unit of the nodes")
    for pipeline in world.pipelines:
        for name in pipeline.subtasks:
            _known(f"pipelines.{pipeline.name}: subtasks", name, subtasks, "subtask")
        _check_edges(pipeline)
    pipelines = {table.name for table in world.pipelines}
    for i, arrival in enumerate(world.arrivals):
        for name in arrival.pipelines or ():
            _known(f"arrivals[{i}]: pipelines", name, pipelines, "pipeline")
        if bool(arrival.trace) == bool(arrival.tasks) or bool(arrival.tasks) != bool(arrival.per_minute):
            raise InvalidInput(f"arrivals[{i}]: expected either tasks and per_minute, or a trace")
    for i, event in enumerate(world.events):
        nodes = {node.name: node for node in world.nodes}
        _known(f"events[{i}]: nodes", event.nodes, nodes, "table of nodes")
        if event.count > nodes[event.nodes].count:
            raise InvalidInput(f"events[{i}]: count: there are {nodes[event.nodes].count} nodes {event.nodes!r}")


def _check_edges(pipeline: PipelineTable) -> None:
    edges = pipeline.edges or ()
    for edge in edges:
        for name in edge:
            _known(f"pipelines.{pipeline.name}: edges", name, pipeline.subtasks, "subtask of this pipeline")
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for first, then in edges:
        order.add(then, first)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        raise InvalidInput(f"pipelines.{pipeline.name}: edges: a cycle: {' -> '.join(error.args[1])}") from None


def _known(place: str, name: str, names: Iterable[str], what: str) -> None:
    if name not in names:
        raise InvalidInput(f"{place}: {name!r}: no such {what}; there are {', '.join(sorted(names))}")


def read_trace(path: Path, pipelines: Mapping[str, int]) -> list[tuple[float, int, float]]:
    """Return arrival in seconds, pipeline and input in MB of each line `arrival_s,pipeline,input_mb` of a trace."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from None
    header = "arrival_s,pipeline,input_mb"
    if not lines or lines[0] != header:
        raise InvalidInput(f"{path}: line 1: expected {header}")
    tasks = []
    for number, line in enumerate(lines[1:], 2):
        try:
            arrival, pipeline, size = line.split(",")
            arrival_s, input_mb = float(arrival), float(size)
        except ValueError:
            arrival_s, pipeline, input_mb = math.nan, "", math.nan
        if not (0 <= arrival_s < math.inf and 0 < input_mb < math.inf):
            raise InvalidInput(f"{path}: line {number}: expected seconds, pipeline, MB, found {shown(line)}")
        _known(f"{path}: line {number}", pipeline, pipelines, "pipeline")
        tasks.append((arrival_s, pipelines[pipeline], input_mb))
    return tasks
