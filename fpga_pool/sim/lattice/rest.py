"""The problem of what waits, on the FPGAs as they are now."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.fitting_kernels import fits, measure_runs
from fpga_pool.core.lattice.listing import Bools, first_fpgas
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """Tasks that could run now, and for each the shapes (indices of the whole problem's) in which it could."""

    tasks: list[int]
    shapes: list[list[int]]

    def only(self, tasks: set[int]) -> "Waiting":
        """Return those that are in the set."""
        kept = [(task, of_task) for task, of_task in zip(self.tasks, self.shapes, strict=True) if task in tasks]
        return Waiting(tasks=[task for task, _ in kept], shapes=[of_task for _, of_task in kept])


def able_to_run(problem: TaskProblem, tasks: Sequence[int], there: Bools) -> Waiting:
    """Return those of the tasks that some enclosure could take if only the FPGAs (F,) were used that are there."""
    base, runs = first_fpgas(problem), np.zeros(problem.fpgas, np.int64)
    rooms = []
    for e, (size, topology) in enumerate(
        zip(problem.enclosure_fpgas.tolist(), problem.enclosure_links.tolist(), strict=True)
    ):
        longest = measure_runs(there, base[e], size, topology, runs)
        rooms.append((size, topology, int(there[base[e] : base[e + 1]].sum()), longest))
    known: dict[tuple[int, int], bool] = {}

    def fits_somewhere(links: int, fpgas: int) -> bool:
        if (links, fpgas) not in known:
            known[links, fpgas] = any(fits(links, fpgas, *room) for room in rooms)
        return known[links, fpgas]

    begin, width, links = problem.shape_begin, problem.shape_fpgas, problem.links
    shapes = [
        [s for s in range(begin[task], begin[task + 1]) if fits_somewhere(int(links[task]), int(width[s]))]
        for task in tasks
    ]
    return Waiting(
        tasks=[task for task, of_task in zip(tasks, shapes, strict=True) if of_task],
        shapes=[of_task for of_task in shapes if of_task],
    )


def rest_of(problem: TaskProblem, waiting: Waiting, ready_s: Floats, loaded: Ints) -> TaskProblem:
    """Return the problem of these tasks, which have arrived; (F,) when each FPGA is free, and what it has loaded."""
    chosen = np.array([s for of_task in waiting.shapes for s in of_task], np.int64)
    rows = np.array(waiting.tasks, np.int64)
    return TaskProblem(
        enclosure_fpgas=problem.enclosure_fpgas,
        enclosure_links=problem.enclosure_links,
        shape_begin=np.cumsum([0] + [len(of_task) for of_task in waiting.shapes]),
        shape_fpgas=problem.shape_fpgas[chosen],
        shape_seconds=problem.shape_seconds[chosen],
        links=problem.links[rows],
        function=problem.function[rows],
        loaded=loaded,
        ready_s=ready_s,
        load_s=problem.load_s,
    )
