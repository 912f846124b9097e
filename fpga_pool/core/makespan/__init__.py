"""Planners that minimize the makespan of a batch (makespan paper).

Import the planners that solve linear programs from their own modules: `paper.cim`, `paper.nim`, `paper.ncjm`.
"""

from fpga_pool.core.makespan.greedy import Ect
from fpga_pool.core.makespan.paper.baselines import BaselineParams, Ljf, Sjf
from fpga_pool.core.makespan.search.best import Makespan, MakespanParams, plan

__all__ = ["BaselineParams", "Ect", "Ljf", "Makespan", "MakespanParams", "Sjf", "plan"]
