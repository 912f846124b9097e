"""Short profiling runs of a subtask before it is executed (learned placement paper, section 4.3.1)."""

import numpy as np

from fpga_pool.core.cluster.views import ACCELERATOR, CPU
from fpga_pool.core.types import Floats
from fpga_pool.sim.cluster.node import accelerator_resources
from fpga_pool.sim.cluster.tables import World

#: Runs of each subtask; each measures one metric, drawn at random.
RUNS = 2
#: Standard deviation of the relative error of a run of 4 s, whose accuracy is 92.3 % (table 3).
ERROR = 0.077


class Profiler:
    """Measures metrics of subtasks on a core and an accelerator that nothing else uses meanwhile."""

    def __init__(self, world: World, profile_s: float) -> None:
        #: How long a subtask is held up.
        self.delay_s = RUNS * profile_s
        resources = accelerator_resources(world)
        #: (S, K, metrics), but for speedups.
        self._true: Floats = np.zeros((len(world.subtasks), len(world.nodes), len(resources) + 3))
        for s, subtask in enumerate(world.subtasks):
            demands = [(subtask.demands or {}).get(resource, 0.0) for resource in resources]
            for k, node in enumerate(world.nodes):
                self._true[s, k, :-1] = 1 / node.cores, subtask.memory_gb / node.memory_gb, *demands

    def measure(
        self, type_: int, kind: int, true_s: list[float], rng: np.random.Generator
    ) -> tuple[tuple[int, float], ...]:
        """Return (metric, value) of each run; the order of the metrics is that of `NodeView`.

        `true_s` are the seconds on each class of units; infinite = there is no implementation.
        """
        metrics = self._true[type_, kind].copy()
        both = np.isfinite(true_s).all()
        metrics[-1] = true_s[CPU] / true_s[ACCELERATOR] if both else 0.0
        chosen = rng.choice(len(metrics), size=min(RUNS, len(metrics)), replace=False)
        factors = 1 + ERROR * rng.standard_normal(len(chosen))
        return tuple(zip(chosen.tolist(), (metrics[chosen] * factors).tolist(), strict=True))
