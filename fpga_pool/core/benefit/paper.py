"""The paper's policies: by throughput, by benefit (Algorithm 1), with replacement (Algorithm 2)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy, OrderedSet
from fpga_pool.core.benefit.pool import Load, Move, Start
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldParams(Parameters):
    """Parameters of the policies without replacement."""

    #: Section V, "fixed accelerators in a certain time until all the tasks for these accelerators are done".  With 5 s,
    #: replacement gains as much as figure 4 reports.
    hold_s: float = parameter(
        5.0, "Minimum seconds for which a slot keeps its function; then it keeps it while jobs wait for it.", min=0.0
    )


class Benefit:
    """Algorithm 1: serve the waiting job of most benefit whose constraints some slot satisfies; replace nothing."""

    name = "benefit"
    Params = HoldParams

    def __init__(self, params: HoldParams | None = None) -> None:
        self._params = params or HoldParams()

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next move."""
        for function in self._ranked(view):
            if (move := start(view, function)) is not None:
                return move
            if len(view.waiting[function]) <= view.loading[function]:
                continue  # a slot is already loading for each of these jobs
            if (slot := self._spare(view, function, now_s)) is not None:
                return Load(slot, function)
        return None

    def _ranked(self, view: Occupancy) -> list[int]:
        """Return the functions that jobs wait for, the best candidate first."""
        waiting = [function for function in view.functions if view.waiting[function]]
        return sorted(waiting, key=lambda function: -self._metric(view, function))

    def _metric(self, view: Occupancy, function: int) -> float:
        return view.demand.speedup[function]

    def _spare(self, view: Occupancy, function: int, now_s: float) -> int | None:
        """Return an empty slot, or an idle one past its hold time whose function no job waits for."""
        for slots, held in fitting(view, function):
            if held != EMPTY and view.waiting[held]:
                continue
            if (slot := view.roomiest(slots, port=True, loaded_by_s=now_s - self._params.hold_s)) is not None:
                return slot
        return None


class Throughput(Benefit):
    """The baseline of section V: the job that moves the most bytes per second comes first."""

    name = "throughput"

    def _metric(self, view: Occupancy, function: int) -> float:
        return max(io_bps[function] for io_bps in view.io_bps)


class BenefitReplace:
    """Algorithm 2: replace the function of least benefit, running or next to run, if that gains more than it costs."""

    name = "benefit_replace"

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next move."""
        speedup = view.demand.speedup
        waiting = sorted((f for f in view.functions if view.waiting[f]), key=lambda f: -speedup[f])
        for function in waiting:
            if (move := start(view, function)) is not None:
                return move
            if len(view.waiting[function]) <= view.loading[function]:
                continue
            if (slot := self._spare(view, function)) is not None:
                return Load(slot, function)
            if (slot := self._least(view, function)) is not None:
                return Load(slot, function)
        return None

    def _spare(self, view: Occupancy, function: int) -> int | None:
        """Return the idle slot of least benefit whose function no job waits for."""
        groups = [(slots, held) for slots, held in fitting(view, function) if held == EMPTY or not view.waiting[held]]
        groups.sort(key=lambda group: 0.0 if group[1] == EMPTY else view.demand.speedup[group[1]])
        found = (view.roomiest(slots, port=True) for slots, _ in groups)
        return next((slot for slot in found if slot is not None), None)

    def _least(self, view: Occupancy, function: int) -> int | None:
        """Return the slot of task_least if replacing it gains more than it costs, both in vCPU-seconds."""
        best, least = None, view.demand.speedup[function]
        for kind in view.kinds:
            if not view.fits[kind][function]:
                continue
            for held in view.functions:
                benefit = view.demand.speedup[held]
                gain = (view.demand.speedup[function] - benefit) * view.demand.work_s[function]
                if benefit >= least or gain <= view.load_s[kind] * benefit:
                    continue
                # Between two jobs, or in the middle of a preemptible one.
                for slots in (view.idle[kind][held], view.evictable[kind][held]):
                    if (slot := view.roomiest(slots, port=True)) is not None:
                        best, least = slot, benefit
        return best


def start(view: Occupancy, function: int) -> Start | None:
    """Return the start of the function's first waiting job on an idle slot that holds it."""
    for kind in view.kinds:
        if slots := view.idle[kind][function]:
            slot = view.roomiest(slots)
            return None if slot is None else Start(slot, function)
    return None


def fitting(view: Occupancy, function: int) -> Iterator[tuple[OrderedSet, int]]:
    """Yield the groups of idle slots that the function could be loaded into and their functions, EMPTY first."""
    for held in (EMPTY, *view.functions):
        if held != function:
            for kind in view.kinds:
                if view.fits[kind][function] and view.idle[kind][held]:
                    yield view.idle[kind][held], held
