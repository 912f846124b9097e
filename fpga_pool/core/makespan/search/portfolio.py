"""The other batch policies, asked for their plan where it might be shorter than what `makespan` has."""

from collections.abc import Callable, Iterator

import numpy as np

from fpga_pool.core.makespan.execution import Schedule
from fpga_pool.core.makespan.fluid import Segments
from fpga_pool.core.makespan.greedy import Ect
from fpga_pool.core.makespan.paper.baselines import Ljf, Sjf
from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.types import BatchProblem

#: Up to here, in jobs and in pairs of job and accelerator, all policies together take some tenths of a second at most.
SMALL_JOBS, SMALL_PAIRS = 300, 10_000
#: From here on, in pairs, the linear programs of some take many seconds.
LARGE_PAIRS = 500_000


class Portfolio:
    """Asks one policy after the other, each once, the quickest first."""

    def __init__(self, problem: BatchProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._left = list(_POLICIES)

    def schedules(self, wanted: Callable[[], bool]) -> Iterator[Schedule]:
        """Yield their schedules as long as they are wanted."""
        while self._left and wanted():
            policy = self._left.pop(0)()
            found = policy.decide(self._problem, None, 0.0, self._rng)
            segments = Segments(found.segment_job, found.segment_begin_s, found.segment_end_s, found.segment_bps)
            results = Segments(found.result_job, found.result_begin_s, found.result_end_s, found.result_bps)
            yield Schedule(found.accelerator, found.start_s, segments, found.makespan_s, results, found.completion_s)


def are_fast(problem: BatchProblem) -> bool:
    """Return whether asking all of them takes next to no time."""
    return problem.seconds.size <= SMALL_PAIRS and problem.jobs <= SMALL_JOBS


def _nim() -> BatchPolicy:
    from fpga_pool.core.makespan.paper.nim import Nim

    return Nim()


def _cim() -> BatchPolicy:
    from fpga_pool.core.makespan.paper.cim import Cim

    return Cim()


def _ncjm() -> BatchPolicy:
    from fpga_pool.core.makespan.paper.ncjm import Ncjm

    return Ncjm()


def _waves() -> BatchPolicy:
    from fpga_pool.core.makespan.paper.ncjm import Waves

    return Waves()


#: The linear programs of the last four take long to import, and are rarely needed.
_POLICIES: tuple[Callable[[], BatchPolicy], ...] = (Ect, Ljf, Sjf, _nim, _cim, _ncjm, _waves)
