"""Planners that minimise the makespan of a batch (makespan paper).

Those that solve linear programs are imported from their modules: `cim`, `nim`, `ncjm`, `ncjm`.
"""

from fpga_pool.core.makespan.greedy.greedy import Ect
from fpga_pool.core.makespan.paper.baselines import BaselineParams, Ljf, Sjf
from fpga_pool.core.makespan.search.best import Makespan, MakespanParams, plan

__all__ = ["BaselineParams", "Ect", "Ljf", "Makespan", "MakespanParams", "Sjf", "plan"]
