"""What happened in a simulation, in columns that a million jobs fit into."""

from array import array

import numpy as np

from fpga_pool.core.types import Floats, Ints

#: Where a job ran.
CPU, FPGA, BOTH, FAILED = 0, 1, 2, 3
PLACES = ("cpu", "fpga", "fpga+cpu", "failed")


class Record:
    """One row per job, and one per stretch of constant rate on a slot."""

    def __init__(self, jobs: int, keep_stretches: bool) -> None:
        self.begin_s: Floats = np.zeros(jobs)
        self.end_s: Floats = np.zeros(jobs)
        self.where: Ints = np.zeros(jobs, np.int64)
        self.reconfigurations = 0
        self._keep = keep_stretches
        #: Per stretch: job (-1 - function for a load), slot, begin, end, rate.
        self.job, self.slot = array("q"), array("q")
        self.from_s, self.to_s, self.rate = array("d"), array("d"), array("d")

    def stretch(self, job: int, slot: int, from_s: float, to_s: float, rate: float) -> None:
        """Note a stretch on a slot."""
        if self._keep and to_s > from_s:
            self.job.append(job)
            self.slot.append(slot)
            self.from_s.append(from_s)
            self.to_s.append(to_s)
            self.rate.append(rate)

    def load(self, slot: int, function: int, from_s: float, to_s: float) -> None:
        """Note a reconfiguration."""
        self.reconfigurations += 1
        self.stretch(-1 - function, slot, from_s, to_s, 0.0)

    def lose(self, job: int, slot: int, begin_s: float) -> None:
        """Set the rate of the job's stretches on this slot to 0: what it did there is lost."""
        for i in range(len(self.job) - 1, -1, -1):
            if self.to_s[i] <= begin_s and self.slot[i] == slot:
                break
            if self.job[i] == job:
                self.rate[i] = 0.0
