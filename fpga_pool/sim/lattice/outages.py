"""FPGAs that are not there for a while."""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.tasks import TaskProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One FPGA (its number within the enclosure) is not there from one time until another."""

    enclosure: int
    fpga: int
    from_s: float
    until_s: float

    def check(self, problem: TaskProblem) -> None:
        """Raise a ValueError where the problem has no such FPGA, or the outage does not end after it begins."""
        if not 0 <= self.enclosure < len(problem.enclosure_fpgas):
            raise ValueError(
                f"outage: enclosure {self.enclosure} is not there, 0..{len(problem.enclosure_fpgas) - 1} are"
            )
        size = int(problem.enclosure_fpgas[self.enclosure])
        if not 0 <= self.fpga < size:
            raise ValueError(f"outage: enclosure {self.enclosure} has FPGAs 0..{size - 1}, got {self.fpga}")
        if not 0 <= self.from_s < self.until_s < np.inf:
            raise ValueError(f"outage: expected an end after the beginning, got {self.from_s:g} to {self.until_s:g} s")
