"""Earliest completion time, largest first: the quick planner that computes, transmits and overlaps well."""

import numpy as np

from fpga_pool.core.makespan.compiled import Kernels
from fpga_pool.core.makespan.execution import complete_plan
from fpga_pool.core.makespan.fluid import transmit
from fpga_pool.core.makespan.placement import largest_first, place
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem


class Ect:
    """Jobs by falling shortest compute time, each to the accelerator that would end it first.

    The same order is the priority of the transfers and the order of the queues: the longest tail is sent first, so
    what remains when the last input arrives is short.
    """

    name = "ect"

    def __init__(self, kernels: Kernels = Kernels.COMPILED) -> None:
        self._kernels = kernels

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic, `rng` is not used."""
        order = largest_first(view)
        accelerator = place(view, order)
        transfers = transmit(view, accelerator, order)
        return complete_plan(view, accelerator, order, transfers, self.name, self._kernels.load())
