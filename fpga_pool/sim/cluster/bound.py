"""The performance of a simulated cluster, and its bounds for any policy: tasks per minute, and mean response time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from fpga_pool.core.cluster.views import ACCELERATOR, CPU
from fpga_pool.core.types import Floats
from fpga_pool.sim.cluster.laws import Bottleneck, Saturation
from fpga_pool.sim.cluster.simulator import Outcome, pipeline_steps, task_view
from fpga_pool.sim.cluster.tables import World
from fpga_pool.sim.cluster.workload import Workload, all_nodes


def summary(world: World, workload: Workload, outcome: Outcome) -> Mapping[str, float]:
    """Return counts, rates and response times; response times are of completed tasks that arrived after the warm-up."""
    warm_s = world.run.warm_up_s
    last_s = float(workload.arrival_s[-1])
    completed = np.isfinite(outcome.end_s)
    counted = completed & (workload.arrival_s >= warm_s)
    response_s = (outcome.end_s - workload.arrival_s)[counted]
    in_window = ((outcome.end_s >= warm_s) & (outcome.end_s <= last_s)).sum()
    accelerators = sum(world.nodes[kind].accelerators for kind in all_nodes(world))
    end_s = max((execution.end_s for execution in outcome.executions), default=0.0)
    useful_s = sum(each.alone_s for each in outcome.executions if each.unit > 0 and each.completed)
    mean, p95, p99 = (
        (response_s.mean(), *np.percentile(response_s, [95, 99])) if len(response_s) else (np.nan, np.nan, np.nan)
    )
    return {
        "tasks": len(completed),
        "completed": int(completed.sum()),
        "placements": int(outcome.placements.sum()),
        "goodput_per_minute": float(in_window / max(last_s - warm_s, 1e-9) * 60),
        "mean_response_s": float(mean),
        "p95_response_s": float(p95),
        "p99_response_s": float(p99),
        "useful_share": useful_s / (accelerators * end_s) if accelerators and end_s > 0 else 0.0,
        "end_s": end_s,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds that hold for any policy, even one that knows true times and interference in advance."""

    per_minute: float
    mean_response_s: float


def bounds(world: World, workload: Workload) -> Bounds:
    """Return the bounds of a world with this workload, as if no node ever failed or left."""
    return Bounds(per_minute=60 * _rate(world, workload), mean_response_s=_response(world, workload))


def _response(world: World, workload: Workload) -> float:
    """Return a lower bound of the mean response time of the tasks that arrive after the warm-up, in seconds.

    For each task it is the transfer of its input on an idle link plus its longest chain, on the best kind of node.
    """
    link = np.array([node.link_gbps * 125.0 for node in world.nodes])
    counted = np.flatnonzero(workload.arrival_s >= world.run.warm_up_s)
    steps = pipeline_steps(world)
    memory_gb = np.array([table.memory_gb for table in world.subtasks])
    total_s = 0.0
    for task in counted:
        pipeline, input_mb = steps[workload.pipeline[task]], float(workload.input_mb[task])
        first = workload.first_step[task]
        noise = workload.noise[first : first + len(pipeline.types), None, None]
        true_s = workload.true.seconds(pipeline.types, input_mb) * noise
        view = task_view(int(task), pipeline, true_s, input_mb, memory_gb[pipeline.types])
        total_s += float((view.path_s + input_mb / link).min())
    return total_s / len(counted) if len(counted) else 0.0


def _rate(world: World, workload: Workload) -> float:
    """Return the largest rate of the workload's mixture in tasks per second, as a fluid that packs perfectly.

    Variables of the linear program are the rate and, for each type of subtask and each class of units of each kind of
    node, the work done there. It is limited by the places of the units and, if the law is known to keep each resource
    within its capacity (`Bottleneck`, or `Saturation` with an exponent of 1 or more), by the resources.
    """
    work_s = _mean_seconds(world, workload)
    conserves = tuple(_conserves(law) for law in (world.cpu_law, world.accelerator_law))
    kinds = work_s.shape[1]
    able = np.argwhere(np.isfinite(work_s))
    present = work_s[np.isfinite(work_s)]
    # Variables: the share of a type's work done on each kind of unit, times the rate; the last one is the rate.
    limits: list[Floats] = []
    most: list[float] = []
    for kind in range(kinds):
        node = world.nodes[kind]
        for unit, units, places in (
            (CPU, node.count * node.cores, 1),
            (ACCELERATOR, node.count * node.accelerators, node.places),
        ):
            here = (able[:, 1] == kind) & (able[:, 2] == unit)
            limits.append(np.append(np.where(here, present, 0.0), 0.0))
            most.append(units * places)
            tables = [(each.cpu_demands if unit == CPU else each.demands) or {} for each in world.subtasks]
            whole = node.count if unit == CPU else units
            for resource in sorted({name for table in tables for name in table}) if conserves[unit] else ():
                demand = np.array([tables[s].get(resource, 0.0) for s in able[:, 0]])
                limits.append(np.append(np.where(here, present * demand, 0.0), 0.0))
                most.append(whole)
    needed = np.flatnonzero(np.isfinite(work_s).any(axis=(1, 2)) & ~np.isnan(work_s).all(axis=(1, 2)))
    equal = np.array([np.append((able[:, 0] == s).astype(float), -1.0) for s in needed])
    cost = np.append(np.zeros(len(able)), -1.0)
    solved = linprog(cost, A_ub=np.array(limits), b_ub=most, A_eq=equal, b_eq=np.zeros(len(needed)))
    return float(-solved.fun) if solved.success else np.inf


def _mean_seconds(world: World, workload: Workload) -> Floats:
    """Return the mean true seconds of each type of subtask per task of the mixture, shape (S, K, 2)."""
    steps = pipeline_steps(world)
    total = np.full(workload.true.base_s.shape, np.nan)
    for number, pipeline in enumerate(steps):
        tasks = np.flatnonzero(workload.pipeline == number)
        for step, type_ in enumerate(pipeline.types):
            if len(tasks):
                noise = workload.noise[workload.first_step[tasks] + step]
                sized = (noise * workload.input_mb[tasks]).sum()
                added = workload.true.base_s[type_] * noise.sum() + workload.true.per_mb_s[type_] * sized
                total[type_] = np.where(np.isnan(total[type_]), added, total[type_] + added)
    mean: Floats = total / len(workload.pipeline)
    return mean


def _conserves(law: object) -> bool:
    return isinstance(law, Bottleneck) or (isinstance(law, Saturation) and law.exponent >= 1)
