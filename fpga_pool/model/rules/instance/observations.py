"""Observations of instances and functions, and the approved designs, for the placement of instances."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Annotated

from msgspec import Meta

from fpga_pool.core.cluster.slowdown import MOST_COST, SlowdownModel
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue, extended, not_to_be_had
from fpga_pool.model.codec import Message
from fpga_pool.model.exceptions import UnknownFunction
from fpga_pool.model.fields import Number
from fpga_pool.model.objects.bitstreams import Design, KnownDesign, is_design

#: Number of most recently ended instances from which run times are learned.
ENDED_INSTANCES = 5000
#: Minimum number of instances for a median.
FEWEST = 3
#: Costs of neighbors below this are ignored.
LEAST_COST = 0.01
#: Used as a project id: all projects.
ALL_PROJECTS = ""


class RunTime(Message, frozen=True, kw_only=True):
    """Median time for which instances of a project, or of ALL_PROJECTS, hold their slots for a function."""

    project_id: str
    function: str
    median_s: Number


class ObservedModel(Message, frozen=True, kw_only=True):
    """A time model that was refitted to the runs of a function on a board."""

    function: str
    board: str
    a_s: Number
    b_s_per_byte: Number


class NeighbourCost(Message, frozen=True, kw_only=True):
    """Learned slowdown of a function beside another one on its card: the added time as a fraction of its time alone."""

    function: str
    beside: str
    cost: Annotated[float, Meta(ge=0, le=MOST_COST)]


class Observations(Message, frozen=True, kw_only=True):
    """Observations of what has run in the pool, and its designs."""

    run_times: tuple[RunTime, ...] = ()
    time_models: tuple[ObservedModel, ...] = ()
    neighbour_costs: tuple[NeighbourCost, ...] = ()
    designs: tuple[KnownDesign, ...] = ()

    def require_usable(self, project_id: str, function: str) -> None:
        """Raise UnknownFunction if a function belongs to a design that is not available to the project."""
        if is_design(function) and not any(
            one.function == function and one.project_id in (ALL_PROJECTS, project_id) for one in self.designs
        ):
            raise UnknownFunction(not_to_be_had(function))

    def run_time_s(self, project_id: str, function: str) -> float | None:
        """Return the median run time of the project's instances, else that of all projects; None = unknown."""
        known = {(entry.project_id, entry.function): entry.median_s for entry in self.run_times}
        return known.get((project_id, function), known.get((ALL_PROJECTS, function)))

    def run_times_s(self) -> Mapping[str, float]:
        """Return the median run times of the instances of all projects, by function."""
        return {entry.function: entry.median_s for entry in self.run_times if entry.project_id == ALL_PROJECTS}

    def applied_to(self, catalogue: Catalogue) -> Catalogue:
        """Return the catalogue with the designs, the observed time models instead of its own, and neighbor costs."""
        catalogue = extended(catalogue, self.designs)
        refitted: defaultdict[str, dict[str, TimeModel]] = defaultdict(dict)
        for model in self.time_models:
            if model.b_s_per_byte > 0 and model.function in catalogue.functions:
                refitted[model.function][model.board] = TimeModel(model.a_s, model.b_s_per_byte)
        costs: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for entry in self.neighbour_costs:
            costs[entry.function][entry.beside] = entry.cost
        if not refitted and not costs:
            return catalogue
        functions = {
            name: replace(
                function,
                fpga_time={**function.fpga_time, **_known(refitted[name], function.fpga_time)},
                neighbour_costs=costs[name],
            )
            for name, function in catalogue.functions.items()
        }
        return replace(catalogue, functions=functions)


def _known(models: Mapping[str, TimeModel], boards: Mapping[str, TimeModel]) -> Mapping[str, TimeModel]:
    return {board: model for board, model in models.items() if board in boards}


def observed(
    ended: Iterable[tuple[str, str, float]],
    models: Mapping[tuple[str, str], TimeModel],
    slowdown: SlowdownModel | None = None,
    designs: Iterable[Design] = (),
) -> Observations:
    """Return the observations from ended leases (see `observed_run_times`), refitted models, slowdown and designs."""
    return Observations(
        run_times=observed_run_times(ended),
        time_models=tuple(
            ObservedModel(function=function, board=board, a_s=model.a_s, b_s_per_byte=model.b_s_per_byte)
            for (function, board), model in sorted(models.items())
        ),
        neighbour_costs=tuple(
            NeighbourCost(function=str(function), beside=str(beside), cost=round(cost, 4))
            for (function, beside), cost in (slowdown.costs() if slowdown is not None else {}).items()
            if cost >= LEAST_COST
        ),
        designs=tuple(
            KnownDesign(
                function=design.function,
                project_id=ALL_PROJECTS if design.public else design.project_id,
                manifest=design.manifest,
            )
            for design in designs
        ),
    )


def observed_run_times(ended: Iterable[tuple[str, str, float]]) -> tuple[RunTime, ...]:
    """Return the median times by project and function; `ended` has (project, function, seconds) of ended leases."""
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for project_id, function, held_s in ended:
        for project in {project_id, ALL_PROJECTS}:
            seconds[project, function].append(held_s)
    return tuple(
        RunTime(project_id=project, function=function, median_s=median(found))
        for (project, function), found in sorted(seconds.items())
        if len(found) >= FEWEST
    )
