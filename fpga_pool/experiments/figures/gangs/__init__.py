"""The figures of the two-tier paper, section 3, with our policy, Lublin's model and a trace added."""

from fpga_pool.experiments.figures.gangs import loads, moves
from fpga_pool.experiments.figures.gangs import moves as costs

#: By number.
EXPERIMENTS = tuple(
    sorted((*loads.EXPERIMENTS, moves.EXPERIMENT, *costs.EXPERIMENTS), key=lambda experiment: experiment.number)
)
