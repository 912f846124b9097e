"""Local search in forward time, for jobs that wait for loads, releases or other groups (Burke and Bykov, 2017).

Each step changes one or two jobs and recomputes the whole schedule: transfers, loads with the ports that slots share,
and computation.  A change is kept if the schedule costs no more than the present one, or than the one of some steps
before (late acceptance).

A few milliseconds decide which of two slots loads first, and may make a schedule much longer.  So a schedule is judged
by the mean of its length and its lengths if slots, inputs and computations are slightly late.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.execution import Schedule, execute
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: Makes a schedule from accelerators (J,) and an order (J,) of transfers and queues.
Evaluate = Callable[[Ints, Ints], Schedule]

#: A schedule is compared with the one this many steps before.
_MEMORY = 15
#: Weight of the jobs' mean end relative to the last end; it favors changes that may allow a shorter schedule later.
_MEAN_WEIGHT = 0.05
#: Work of a step, in job-accelerator pairs: a constant, and per job.
_PAIRS_PER_STEP, _PAIRS_PER_JOB = 120_000, 2_000
#: Maximum delay of slots, inputs and computations, as a share of the schedule, and the number of random variants.
_LATE, _WAYS = 0.005, 3
#: Probabilities that a step changes a job of the slot that ends last, moves a job next to one of the same function, and
#: exchanges two jobs instead of moving one.
_CRITICAL, _JOINING, _EXCHANGING = 0.5, 0.5, 0.3
#: Number of jobs that a step tries as partners for an exchange before it gives up.
_TRIES = 8


class LateAcceptance:
    """Improves one schedule of a problem until the budget is spent."""

    def __init__(self, problem: BatchProblem, evaluate: Evaluate, budget: Budget, rng: np.random.Generator) -> None:
        self._problem, self._evaluate, self._budget, self._rng = problem, evaluate, budget, rng
        self._rows = np.arange(problem.jobs)
        self._possible = np.isfinite(problem.seconds)
        self._step_pairs = _PAIRS_PER_STEP + _PAIRS_PER_JOB * problem.jobs
        #: Variants: a problem with longer computations, the delay of each input, and the times when slots may load.
        self._late: list[tuple[BatchProblem, Floats, Floats]] = []

    def run(self, accelerator: Ints, turn: Floats, enough_s: float) -> Schedule:
        """Return the best schedule found, starting from a placement (J,) and turns (J,), lowest first."""
        if self._problem.load_s.any():
            self._late = self._lateness(
                self._evaluate(accelerator, np.lexsort((turn, self._problem.group))).completion_s
            )
        best, cost_s, ends_s = self._cost(accelerator, turn)
        best_cost_s = cost_s
        memory = [cost_s] * _MEMORY
        step = 0
        while best.completion_s > enough_s and self._budget.allows():
            self._budget.spend(self._step_pairs)
            changed = self._changed(accelerator, turn, ends_s)
            if changed is None:
                continue
            found, new_s, new_ends_s = self._cost(*changed)
            if new_s <= max(cost_s, memory[step % _MEMORY]):
                (accelerator, turn), cost_s, ends_s = changed, new_s, new_ends_s
                if cost_s < best_cost_s:
                    best, best_cost_s = found, cost_s
            memory[step % _MEMORY] = cost_s
            step += 1
        return best

    def _cost(self, accelerator: Ints, turn: Floats) -> tuple[Schedule, float, Floats]:
        order = np.lexsort((turn, self._problem.group))
        found = self._evaluate(accelerator, order)
        ends_s = found.start_s + self._problem.seconds[self._rows, accelerator]
        length_s = (found.completion_s + sum(self._late_s(found))) / (1 + len(self._late))
        return found, length_s + _MEAN_WEIGHT * float(ends_s.mean()), ends_s

    def _lateness(self, length_s: float) -> list[tuple[BatchProblem, Floats, Floats]]:
        problem, found = self._problem, []
        for _ in range(_WAYS):
            compute_s, input_s = _LATE * length_s * self._rng.random((2, problem.jobs))
            free_s = problem.free_s + _LATE * length_s * self._rng.random(problem.accelerators)
            found.append((replace(problem, seconds=problem.seconds + compute_s[:, None]), input_s, free_s))
        return found

    def _late_s(self, found: Schedule) -> Iterator[float]:
        """Yield the completion time of the schedule for each variant of delays."""
        arrived_s = np.array(self._problem.release_s)
        np.maximum.at(arrived_s, found.segments.flow, found.segments.end_s)
        order = np.argsort(found.start_s, kind="stable")
        for problem, late_s, free_s in self._late:
            start_s = execute(problem, found.accelerator, order, arrived_s + late_s, free_s)
            ends_s = start_s + problem.seconds[self._rows, found.accelerator]
            yield float(ends_s.max()) + found.completion_s - found.makespan_s

    def _changed(self, accelerator: Ints, turn: Floats, ends_s: Floats) -> tuple[Ints, Floats] | None:
        """Return placement and turns with one or two jobs moved; None if no possible change was found."""
        rng, jobs = self._rng, self._problem.jobs
        among = self._rows
        if rng.random() < _CRITICAL:
            among = np.flatnonzero(accelerator == accelerator[int(ends_s.argmax())])
        job = int(among[rng.integers(len(among))])
        new_accelerator, new_turn = accelerator.copy(), turn.copy()
        if rng.random() < _EXCHANGING:
            for other in rng.integers(jobs, size=_TRIES).tolist():
                here, there = accelerator[job], accelerator[other]
                if here != there and self._possible[job, there] and self._possible[other, here]:
                    new_accelerator[[job, other]] = there, here
                    new_turn[[job, other]] = turn[[other, job]]
                    return new_accelerator, new_turn
            return None
        # Move the job next to another one of the same function, or any other one.
        near = self._rows
        if rng.random() < _JOINING:
            near = np.flatnonzero(self._problem.function == self._problem.function[job])
        other = int(near[rng.integers(len(near))])
        slots = np.flatnonzero(self._possible[job])
        slot = accelerator[other] if self._possible[job, accelerator[other]] else slots[rng.integers(len(slots))]
        new_accelerator[job] = slot
        beside = np.sort(turn[turn > turn[other]])[:1] if rng.random() < 0.5 else np.sort(turn[turn < turn[other]])[-1:]
        new_turn[job] = (turn[other] + beside[0]) / 2 if len(beside) else turn[other] + rng.choice((-1.0, 1.0))
        return new_accelerator, new_turn
