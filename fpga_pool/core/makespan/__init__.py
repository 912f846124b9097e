"""Planners that minimise the makespan of a batch (makespan paper).

Those that solve linear programmes are imported from their modules: `paper.cim`, `paper.nim`, `paper.ncjm`.
"""

from fpga_pool.core.makespan.greedy import Ect
from fpga_pool.core.makespan.paper.baselines import BaselineParams, Ljf, Sjf
from fpga_pool.core.makespan.search.best import Makespan, MakespanParams, plan

__all__ = ["BaselineParams", "Ect", "Ljf", "Makespan", "MakespanParams", "Sjf", "plan"]
