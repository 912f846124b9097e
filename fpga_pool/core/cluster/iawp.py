"""`iawp`: Interference-Aware Workload Parallelization, the paper's policy for nodes (section 4.3, algorithm 2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.cluster.metrics import Gaussian, MetricModel, require_torch
from fpga_pool.core.cluster.nodes import can_execute
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.types import Floats

PREDICTORS, SIMILARITIES = ("ncf", "gaussian"), ("printed", "without_size", "centred")
#: Speedups are divided by this, because the network's output is below 1.
GREATEST_SPEEDUP = 16.0
#: Columns of the table of metrics before those of the accelerator's resources.
_NODE_METRICS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IawpParams(Parameters):
    """Parameters; the paper only gives the length of a profiling run (section 4.3.1), the others are ours."""

    predictor: str = parameter("ncf", "Model that predicts metrics that were not measured.", choices=PREDICTORS)
    similarity: str = parameter(
        "printed",
        "Vectors whose cosine is taken: as printed with the size of the input in MB, without it, or also less the mean "
        "of all types.",
        choices=SIMILARITIES,
    )
    profile_s: float = parameter(4.0, "Seconds of each of the two profiling runs.", min=0.0)
    queue: int = parameter(8, "Length of a node's queue for its accelerators.", min=1)
    most: int = parameter(4, "Maximum number of subtasks on an accelerator (Kmax).", min=1)
    threshold: float = parameter(
        0.8, "Usage of an accelerator or of its memory at or above which no further subtask is placed on it.", above=0.0
    )
    guard: bool = parameter(False, "Whether a core takes a subtask only where it ends sooner than queued; ours.")


class Iawp:
    """Cores take the subtask of least speedup, accelerators the queued subtask least similar to what they run."""

    Params = IawpParams

    def __init__(self, *, corun: bool, admission: bool, params: IawpParams | None = None) -> None:
        self.params = params or IawpParams()
        if self.params.predictor == "ncf":
            require_torch("iawp")
        self.corun, self.admission = corun, admission
        self.profile_s = self.params.profile_s
        self._rng = np.random.default_rng(0)
        #: By kind of node: the model of metrics, which nodes of one kind share (section 4.3.4).
        self._models: dict[int, MetricModel] = {}
        #: By node: the subtasks in the queue of its accelerators, which cores do not take any more.
        self._queues: dict[int, list[Subtask]] = {}

    def learner(self, rng: np.random.Generator) -> "Iawp":
        """Return a copy of this policy with separate memory, for one run."""
        own = Iawp(corun=self.corun, admission=self.admission, params=self.params)
        own._rng = rng
        return own

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        model = self._model(view)
        for metric, value in subtask.measured:
            scale = GREATEST_SPEEDUP if metric == _NODE_METRICS + len(view.resources) else 1.0
            model.observe(subtask.type, metric, min(value / scale, 1.0))
        return None

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        queue = self._fill_queue(view)
        if unit.kind == CPU:
            queued = set(map(id, queue))
            able = [each for each in view.ready if id(each) not in queued and can_execute(unit, each)]
            if self.params.guard:
                able = [each for each in able if self._sooner_on_core(view, each)]
            return min(able, key=lambda each: self._speedup(view, each), default=None)
        if not self._has_room(view, unit):
            return None
        able = [
            each
            for each in queue
            if can_execute(unit, each) and unit.used_gb + each.accelerator_memory_gb <= unit.memory_gb
        ]
        # Of equal ones the first, because the queue is in order of speedup.
        chosen = max(able, key=lambda each: self._priority(view, unit, each), default=None)
        if chosen is not None:
            queue.remove(chosen)
        return chosen

    # Speedups and the queue (lines 7 to 12) --------------------------------------------------------------------------

    def _fill_queue(self, view: NodeView) -> list[Subtask]:
        """Return the queue of the accelerators, filled with the subtasks of most speedup not left to idle cores."""
        waiting = set(map(id, view.ready))
        queue = [each for each in self._queues.get(view.number, []) if id(each) in waiting]
        self._queues[view.number] = queue
        queued = set(map(id, queue))
        free = [each for each in view.ready if id(each) not in queued]
        cores, accelerators = view.units[CPU], view.units[1:]
        by_speedup = sorted(free, key=lambda each: self._speedup(view, each))
        idle = cores.places - len(cores.running)
        for each in [each for each in by_speedup if can_execute(cores, each)][: max(idle, 0)]:
            if not self.params.guard or self._sooner_on_core(view, each):
                by_speedup.remove(each)
        able = [each for each in reversed(by_speedup) if any(can_execute(unit, each) for unit in accelerators)]
        queue += able[: max(self.params.queue - len(queue), 0)]
        return queue

    def _speedup(self, view: NodeView, subtask: Subtask) -> float:
        """Return the measured or predicted speedup; 0 or infinite if there is only one implementation."""
        if not np.isfinite(subtask.estimate_s).all():
            return subtask.speedup
        metric = _NODE_METRICS + len(view.resources)
        measured = dict(subtask.measured)
        return measured[metric] if metric in measured else GREATEST_SPEEDUP * self._predicted(view, subtask)[metric]

    def _sooner_on_core(self, view: NodeView, subtask: Subtask) -> bool:
        accelerators = [unit for unit in view.units[1:] if can_execute(unit, subtask)]
        if not accelerators:
            return True
        behind = [*self._queues.get(view.number, [])]
        queued_s = sum(each.estimate_s[ACCELERATOR] for each in behind if each is not subtask) / len(accelerators)
        wait_s = min(unit.backlog_s for unit in accelerators) + queued_s
        return subtask.estimate_s[CPU] <= wait_s + subtask.estimate_s[ACCELERATOR]

    # Interference (lines 13 to 20) -----------------------------------------------------------------------------------

    def _has_room(self, view: NodeView, unit: Unit) -> bool:
        if not unit.running:
            return True
        use = np.sum([self._resources(view, each) for each in unit.running], axis=0).max(initial=0.0)
        memory = unit.used_gb / unit.memory_gb if unit.memory_gb else 0.0
        return len(unit.running) < self.params.most and max(float(use), memory) < self.params.threshold

    def _priority(self, view: NodeView, unit: Unit, subtask: Subtask) -> float:
        """Return 1 / mean cosine to the running subtasks (equation 6); the text inverts it, algorithm 2 does not."""
        if not unit.running:
            return 0.0
        own = self._vector(view, subtask)
        cosines = [cosine(own, self._vector(view, each)) for each in unit.running]
        mean = float(np.mean(cosines))
        # A cosine of 0 or less: no similarity at all ranks before any similarity.
        return 1 / mean if mean > 1e-6 else 1e6 * (1 - mean)

    def _vector(self, view: NodeView, subtask: Subtask) -> Floats:
        vector = self._resources(view, subtask)
        if self.params.similarity == "centred":
            types = [self._model(view).predict(type_) for type_ in range(view.types)]
            vector = vector - np.mean(types, axis=0)[_NODE_METRICS:-1]
        if self.params.similarity == "printed":
            vector = np.append(vector, subtask.input_mb)
        return vector

    def _resources(self, view: NodeView, subtask: Subtask) -> Floats:
        """Return the share of each resource of an accelerator that a subtask needs, measured or else predicted."""
        row = self._predicted(view, subtask).copy()
        for metric, value in subtask.measured:
            row[metric] = value
        return row[_NODE_METRICS:-1]

    def _predicted(self, view: NodeView, subtask: Subtask) -> Floats:
        return self._model(view).predict(subtask.type)

    def _model(self, view: NodeView) -> MetricModel:
        if view.kind not in self._models:
            metrics = _NODE_METRICS + len(view.resources) + 1
            if self.params.predictor == "ncf":
                from fpga_pool.core.cluster.dqn import Ncf

                self._models[view.kind] = Ncf(view.types, metrics, rng=self._rng)
            else:
                self._models[view.kind] = Gaussian(view.types, metrics)
        return self._models[view.kind]


def cosine(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """Return the cosine of two vectors; 0 if one of them is 0."""
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(np.dot(one, other) / lengths) if lengths > 0 else 0.0
