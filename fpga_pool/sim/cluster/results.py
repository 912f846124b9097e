"""What a simulated cluster achieved, in a few numbers."""

from collections.abc import Mapping

import numpy as np

from fpga_pool.sim.cluster.simulator import Outcome
from fpga_pool.sim.cluster.tables import World
from fpga_pool.sim.cluster.workload import Workload, all_nodes


def summary(world: World, workload: Workload, outcome: Outcome) -> Mapping[str, float]:
    """Return counts, rates and response times; these of the tasks that arrive after the warm-up, and completed."""
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
