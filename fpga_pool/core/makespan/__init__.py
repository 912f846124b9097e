"""Planners that minimise the makespan of a batch (makespan paper).

Those that solve linear programs are imported from their modules: `cim`, `nim`, `ncjm`, `waves`.
"""

from fpga_pool.core.makespan.baselines import BaselineParams, Ljf, Sjf
from fpga_pool.core.makespan.best import Makespan, MakespanParams, plan
from fpga_pool.core.makespan.ect import Ect

__all__ = ["BaselineParams", "Ect", "Ljf", "Makespan", "MakespanParams", "Sjf", "plan"]
