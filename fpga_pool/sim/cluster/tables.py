"""Tables of a cluster scenario: which keys there are, what each accepts, and what it is without one."""

# ruff: noqa: RUF009  # `key` makes a field

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    share,
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

    error: float = key(SECONDS, 0.0)
    noise: float = key(SECONDS, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """A table `[nodes.NAME]`: equal nodes."""

    name: str
    count: int = key(COUNT_OF_SOME, 1)
    present: bool = key(FLAG, True)
    cores: int = key(COUNT_OF_SOME)
    speed: float = key(POSITIVE, 1.0)
    memory_gb: float = key(POSITIVE)
    accelerator: str = key(NAME, "")
    accelerators: int = key(COUNT, 0)
    accelerator_memory_gb: float = key(_GIGABYTES, 0.0)
    places: int = key(COUNT_OF_SOME, 4)
    link_gbps: float = key(POSITIVE, 1.0)
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
    tasks: int = key(COUNT_OF_SOME, 0, shown_default="required without a trace")
    per_minute: float = key(POSITIVE, 0.0, shown_default="required without a trace")
    begin_s: float = key(SECONDS, 0.0)
    input_mb: Spread = key(POSITIVE_SPREAD, _INPUT, shown_default="100")
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
    """A whole cluster scenario."""

    path: Path
    run: RunTable
    estimates: EstimatesTable
    nodes: tuple[NodeTable, ...]
    subtasks: tuple[SubtaskTable, ...]
    pipelines: tuple[PipelineTable, ...]
    arrivals: tuple[ArrivalTable, ...]
    events: tuple[EventTable, ...]
    #: Laws of accelerators and of cores; None = no interference.
    accelerator_law: Law | None
    cpu_law: Law | None
