"""A simulated node: its units execute subtasks at rates that depend on what runs beside them."""

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

#: Seconds of work that are done: rounding.
_DONE_S = 1e-9
#: The same in steps of the clock, which are longer than that when it shows seconds since 1970.
_DONE_STEPS = 4
#: Exponent of used / available memory by which the cores of a node slow down when it swaps.
THRASHING = 2.0


@dataclass(slots=True, eq=False, kw_only=True)
class Work(Subtask):
    """A subtask with what policies do not see."""

    #: (2,) true seconds on each class of units.
    true_s: tuple[float, float]
    #: Seconds left, alone on its unit.
    left_s: float = 0.0
    begin_s: float = 0.0
    #: Its current rate is 1 / slowdown.
    slowdown: float = 1.0
    #: How long it ran beside which types, sorted; kept for policies that learn from it.
    beside_s: dict[Companions, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class _Unit(Unit):
    #: When `left_s` of what runs was right.
    at_s: float = 0.0
    #: Counts changes; an end that was computed before the last one is void.
    version: int = 0


class Interference:
    """The laws of a world, remembered by what runs together."""

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
        """Return the slowdown of each type that runs."""
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
    """Return the slowdowns by a law, which may be of another package; ValueError says what is wrong with them."""
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
        """Lose everything; return what ran, with its units."""
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
        """Have the policy bind a subtask that is ready."""
        number = self._policy.bind(self.view, work, rng)
        if number is None:
            self.view.ready.append(work)
        else:
            self.units[number].queue.append(work)
            self.units[number].backlog_s += work.estimate_s[self.units[number].kind]

    def start(self, now_s: float) -> None:
        """Start what there are places and memory for; the emptiest unit chooses first."""
        ready = self.view.ready
        open_units = [(len(unit.running), i) for i, unit in enumerate(self.units) if ready or unit.queue]
        while open_units:
            chosen = min(open_units)
            open_units.remove(chosen)
            if self._start_on(chosen[1], now_s):
                open_units.append((chosen[0] + 1, chosen[1]))

    def end(self, number: int, now_s: float) -> list[Work]:
        """Return what has ended on a unit by now, and take it off."""
        unit = self.units[number]
        self._advance(unit, now_s)
        ended = [work for work in unit.running if isinstance(work, Work) and _is_done(work, now_s)]
        for work in ended:
            unit.running.remove(work)
            unit.used_gb -= work.accelerator_memory_gb if unit.kind == ACCELERATOR else 0.0
            unit.backlog_s -= work.estimate_s[unit.kind]
            self.view.used_gb -= work.memory_gb
        if not unit.running:  # no rounding is carried on
            unit.used_gb = 0.0
        if not unit.running and not unit.queue:
            unit.backlog_s = 0.0
        self._change(number)
        return ended

    def next_ends(self, now_s: float) -> list[tuple[int, int, float]]:
        """Return number, version and next end of each unit where rates have changed since the last call."""
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
        """Set the rates of a unit; return in how many seconds something ends there."""
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
        if not self._policy.admission:  # how much the cores swap depends on all units
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


# ---- What runs say of subtasks: short ones before, for profiles, and times that estimates follow

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

    The estimate itself counts as one observation.  Where the node policy has no model of interference, an actual time
    includes what that has added.
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
