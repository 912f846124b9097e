"""Planners that minimise the make-span of a batch (paper 000)."""

from fpga_pool.core.makespan.baselines import BaselineParams, Ljf, Sjf
from fpga_pool.core.makespan.best import Makespan, MakespanParams, plan
from fpga_pool.core.makespan.cim import Cim, CimParams
from fpga_pool.core.makespan.ect import Ect
from fpga_pool.core.makespan.ncjm import Ncjm, NcjmParams
from fpga_pool.core.makespan.nim import Nim, NimParams
from fpga_pool.core.makespan.waves import Waves, WavesParams

__all__ = [
    "BaselineParams",
    "Cim",
    "CimParams",
    "Ect",
    "Ljf",
    "Makespan",
    "MakespanParams",
    "Ncjm",
    "NcjmParams",
    "Nim",
    "NimParams",
    "Sjf",
    "Waves",
    "WavesParams",
    "plan",
]
