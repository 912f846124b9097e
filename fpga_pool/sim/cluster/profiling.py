"""What runs say of subtasks: short ones before, for profiles, and times that estimates follow."""

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
    """Measures metrics of subtasks on a core and an accelerator that nothing else uses meanwhile.

    Each subtask has short runs before it is executed (learned placement paper, section 4.3.1).
    """

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


#: The latest observation counts for so much at least: a mean over about 20 where things change.
LEAST_WEIGHT = 0.05


class Calibration:
    """Running means of actual / estimated seconds of S types on K kinds of nodes; 1 until something is known.

    The estimate itself counts as one observation, and an actual time includes what interference has added.
    """

    def __init__(self, types: int, kinds: int) -> None:
        #: (S, K, 2) by which estimates are to be multiplied.
        self.factors: Floats = np.ones((types, kinds, 2))
        self._observed = np.ones((types, kinds, 2))

    def observe(self, type_: int, kind: int, unit: int, estimated_s: float, actual_s: float) -> None:
        """Learn from a subtask that has been completed; `estimated_s` is without calibration."""
        place = type_, kind, unit
        self._observed[place] += 1
        weight = max(1 / self._observed[place], LEAST_WEIGHT)
        self.factors[place] += weight * (actual_s / estimated_s - self.factors[place])
