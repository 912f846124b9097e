"""A simulated node, whose units execute subtasks at rates that depend on the other subtasks on the unit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.cluster.nodes import NodePolicy, ObservingNodePolicy
from fpga_pool.core.cluster.slowdown import Companions
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit
from fpga_pool.core.types import Floats
from fpga_pool.sim.cluster.laws import Law
from fpga_pool.sim.cluster.tables import World
from fpga_pool.sim.scenario.values import shown

#: Remaining seconds of work that count as done, because of rounding.
_DONE_S = 1e-9
#: The same in units of the clock's resolution, which is coarser when the clock shows seconds since 1970.
_DONE_STEPS = 4
#: Exponent of used / available memory by which the cores of a node slow down when it swaps.
THRASHING = 2.0


@dataclass(slots=True, eq=False, kw_only=True)
class Work(Subtask):
    """A subtask with the state that policies do not see."""

    #: (2,) true seconds on each class of units.
    true_s: tuple[float, float]
    #: Remaining seconds if it were alone on its unit.
    left_s: float = 0.0
    begin_s: float = 0.0
    #: Its current rate is 1 / slowdown.
    slowdown: float = 1.0
    #: Seconds that it ran beside each sorted tuple of other types; recorded for policies that learn from it.
    beside_s: dict[Companions, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class _Unit(Unit):
    #: Time for which `left_s` of the running subtasks was computed.
    at_s: float = 0.0
    #: Counts changes; an end that was computed before the last change is void.
    version: int = 0


class Interference:
    """The interference laws of a world; slowdowns are cached by the types that run together."""

    def __init__(self, world: World) -> None:
        self._laws = (world.cpu_law, world.accelerator_law)
        self._demands = []
        for tables in (
            [subtask.cpu_demands or {} for subtask in world.subtasks],
            [subtask.demands or {} for subtask in world.subtasks],
        ):
            resources = sorted({resource for table in tables for resource in table})
            self._demands.append(np.array([[table.get(each, 0.0) for each in resources] for table in tables]))
        self._known: dict[tuple[int, tuple[int, ...]], Mapping[int, float]] = {}

    def slowdowns(self, kind: int, running: list[int]) -> Mapping[int, float]:
        """Return the slowdown of each running type."""
        types = tuple(sorted(running))
        found = self._known.get((kind, types))
        if found is None:
            law: Law | None = self._laws[kind]
            if law is None:
                found = dict.fromkeys(types, 1.0)
            else:
                found = dict(zip(types, _asked(law, self._demands[kind][list(types)]), strict=True))
            self._known[kind, types] = found
        return found


def _asked(law: Law, demands: Floats) -> list[float]:
    """Return the slowdowns by a law, which may be of another package; raises ValueError if they are not valid."""
    place = f"interference law {type(law).__name__}"
    try:
        slowdowns = np.asarray(law.slowdowns(demands.copy()), dtype=np.float64)
    except Exception as error:
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error
    if slowdowns.shape != (len(demands),) or not (np.isfinite(slowdowns) & (slowdowns >= 1)).all():
        raise ValueError(f"{place}: expected {len(demands)} finite slowdowns, 1 or more, found {shown(slowdowns)}")
    alike = (demands[:, None] == demands).all(axis=2)
    if not np.isclose(slowdowns[:, None], slowdowns)[alike].all():
        raise ValueError(f"{place}: expected equal slowdowns for equal demands, found {shown(slowdowns)}")
    return slowdowns.tolist()


def accelerator_resources(world: World) -> tuple[str, ...]:
    """Return the resources that subtasks need of an accelerator, in alphabetical order."""
    return tuple(sorted({resource for subtask in world.subtasks for resource in subtask.demands or {}}))


class Node:
    """Queues, units and memory of one node."""

    def __init__(self, number: int, kind: int, world: World, policy: NodePolicy, interference: Interference) -> None:
        self._policy, self._interference = policy, interference
        table = world.nodes[kind]
        shared = table.places if policy.corun else 1
        self.units: list[_Unit] = [_Unit(kind=CPU, places=table.cores, memory_gb=np.inf)]
        for _ in range(table.accelerators):
            self.units.append(_Unit(kind=ACCELERATOR, places=shared, memory_gb=table.accelerator_memory_gb))
        self.view = NodeView(
            number=number,
            kind=kind,
            types=len(world.subtasks),
            resources=accelerator_resources(world),
            units=list(self.units),
            memory_gb=table.memory_gb,
        )
        self._changed: set[int] = set()
        self._profiles = isinstance(policy, ObservingNodePolicy)

    def clear(self) -> list[tuple[int, Work]]:
        """Remove all subtasks; return those that ran, each with the number of its unit."""
        lost = []
        for number, unit in enumerate(self.units):
            lost += [(number, work) for work in unit.running]
            unit.running, unit.used_gb, unit.backlog_s = [], 0.0, 0.0
            unit.queue.clear()
            unit.version += 1
        self.view.ready.clear()
        self.view.used_gb = 0.0
        return lost  # type: ignore[return-value]

    def offer(self, work: Work, rng: np.random.Generator) -> None:
        """Add a ready subtask to the queue of the unit to which the policy binds it, or to the common ready list."""
        number = self._policy.bind(self.view, work, rng)
        if number is None:
            self.view.ready.append(work)
        else:
            self.units[number].queue.append(work)
            self.units[number].backlog_s += work.estimate_s[self.units[number].kind]

    def start(self, now_s: float) -> None:
        """Start subtasks while places and memory are available; the unit with the fewest running ones chooses first."""
        ready = self.view.ready
        open_units = [(len(unit.running), i) for i, unit in enumerate(self.units) if ready or unit.queue]
        while open_units:
            chosen = min(open_units)
            open_units.remove(chosen)
            if self._start_on(chosen[1], now_s):
                open_units.append((chosen[0] + 1, chosen[1]))

    def end(self, number: int, now_s: float) -> list[Work]:
        """Remove and return the subtasks that have ended on a unit by now."""
        unit = self.units[number]
        self._advance(unit, now_s)
        ended = [work for work in unit.running if isinstance(work, Work) and _is_done(work, now_s)]
        for work in ended:
            unit.running.remove(work)
            unit.used_gb -= work.accelerator_memory_gb if unit.kind == ACCELERATOR else 0.0
            unit.backlog_s -= work.estimate_s[unit.kind]
            self.view.used_gb -= work.memory_gb
        if not unit.running:  # drops accumulated rounding errors
            unit.used_gb = 0.0
        if not unit.running and not unit.queue:
            unit.backlog_s = 0.0
        self._change(number)
        return ended

    def next_ends(self, now_s: float) -> list[tuple[int, int, float]]:
        """Return (number, version, next end) of each unit whose rates have changed since the last call."""
        ends = []
        for number in sorted(self._changed):
            unit = self.units[number]
            self._advance(unit, now_s)
            unit.version += 1
            if unit.running:
                ends.append((number, unit.version, now_s + self._next_s(unit)))
        self._changed.clear()
        return ends

    def _next_s(self, unit: _Unit) -> float:
        """Set the rates on a unit; return the seconds until the first of its subtasks ends."""
        slowdowns = self._interference.slowdowns(unit.kind, [work.type for work in unit.running])
        swapping = 1.0
        if unit.kind == CPU and self.view.used_gb > self.view.memory_gb:
            swapping = (self.view.used_gb / self.view.memory_gb) ** THRASHING
        next_s = np.inf
        for work in unit.running:
            assert isinstance(work, Work)  # noqa: S101
            work.slowdown = slowdowns[work.type] * swapping
            next_s = min(next_s, work.left_s * work.slowdown)
        return float(next_s)

    def _start_on(self, number: int, now_s: float) -> bool:
        unit = self.units[number]
        if len(unit.running) >= unit.places:
            return False
        work = unit.queue[0] if unit.queue else self._policy.pick(self.view, unit)
        if work is None or not self._fits(work, unit):
            return False
        assert isinstance(work, Work)  # noqa: S101
        if unit.queue:
            unit.queue.popleft()
        else:
            self.view.ready.remove(work)
            unit.backlog_s += work.estimate_s[unit.kind]
        self._advance(unit, now_s)
        work.left_s, work.begin_s, work.slowdown = work.true_s[unit.kind], now_s, 1.0
        unit.running.append(work)
        unit.used_gb += work.accelerator_memory_gb if unit.kind == ACCELERATOR else 0.0
        self.view.used_gb += work.memory_gb
        self._change(number)
        return True

    def _fits(self, work: Subtask, unit: Unit) -> bool:
        if unit.kind == ACCELERATOR and unit.used_gb + work.accelerator_memory_gb > unit.memory_gb * (1 + 1e-12):
            return False
        return not self._policy.admission or self.view.used_gb + work.memory_gb <= self.view.memory_gb * (1 + 1e-12)

    def _change(self, number: int) -> None:
        self._changed.add(number)
        if not self._policy.admission:  # swapping slows the cores down by the memory used on all units
            self._changed.add(0)

    def _advance(self, unit: _Unit, now_s: float) -> None:
        passed_s = now_s - unit.at_s
        unit.at_s = now_s
        if passed_s <= 0:
            return
        if self._profiles:
            types = sorted(work.type for work in unit.running)
        for work in unit.running:
            work.left_s -= passed_s / work.slowdown  # type: ignore[attr-defined]
            if self._profiles:
                place = types.index(work.type)
                beside = (*types[:place], *types[place + 1 :])
                work.beside_s[beside] = work.beside_s.get(beside, 0.0) + passed_s  # type: ignore[attr-defined]


def _is_done(work: Work, now_s: float) -> bool:
    return work.left_s <= _DONE_S or work.left_s * work.slowdown <= _DONE_STEPS * math.ulp(now_s)


# ---- Measurements of subtasks: short profiling runs before execution, and actual times for calibration

#: Profiling runs of each subtask; each run measures one metric, drawn at random.
RUNS = 2
#: Standard deviation of the relative error of a profiling run of 4 s, whose accuracy is 92.3 % (table 3).
ERROR = 0.077


class Profiler:
    """Measures metrics of subtasks on a core and an accelerator that are otherwise idle.

    Each subtask has short runs before it is executed (learned placement paper, section 4.3.1).
    """

    def __init__(self, world: World, profile_s: float) -> None:
        #: Delay of each subtask, in seconds.
        self.delay_s = RUNS * profile_s
        resources = accelerator_resources(world)
        #: (S, K, metrics) true values, without the last metric, the speedup, which `measure` adds.
        self._true: Floats = np.zeros((len(world.subtasks), len(world.nodes), len(resources) + 3))
        for s, subtask in enumerate(world.subtasks):
            demands = [(subtask.demands or {}).get(resource, 0.0) for resource in resources]
            for k, node in enumerate(world.nodes):
                self._true[s, k, :-1] = 1 / node.cores, subtask.memory_gb / node.memory_gb, *demands

    def measure(
        self, type_: int, kind: int, true_s: list[float], rng: np.random.Generator
    ) -> tuple[tuple[int, float], ...]:
        """Return (metric, value) of each run; metrics are numbered as in `NodeView`.

        `true_s` are the true seconds on each class of units; infinite = no implementation.
        """
        metrics = self._true[type_, kind].copy()
        both = np.isfinite(true_s).all()
        metrics[-1] = true_s[CPU] / true_s[ACCELERATOR] if both else 0.0
        chosen = rng.choice(len(metrics), size=min(RUNS, len(metrics)), replace=False)
        factors = 1 + ERROR * rng.standard_normal(len(chosen))
        return tuple(zip(chosen.tolist(), (metrics[chosen] * factors).tolist(), strict=True))


#: Minimum weight of the latest observation, so that the mean follows changes within about 20 observations.
LEAST_WEIGHT = 0.05


class Calibration:
    """Running means of actual / estimated seconds of S types on K kinds of nodes; 1 without observations.

    The estimate itself counts as one observation.  If the node policy does not model interference, actual times include
    its effect.
    """

    def __init__(self, types: int, kinds: int) -> None:
        #: (S, K, 2) factors by which estimates are to be multiplied.
        self.factors: Floats = np.ones((types, kinds, 2))
        self._observed = np.ones((types, kinds, 2))

    def observe(self, type_: int, kind: int, unit: int, estimated_s: float, actual_s: float) -> None:
        """Update the factor with a completed subtask; `estimated_s` is the estimate without calibration."""
        place = type_, kind, unit
        self._observed[place] += 1
        weight = max(1 / self._observed[place], LEAST_WEIGHT)
        self.factors[place] += weight * (actual_s / estimated_s - self.factors[place])
