"""The figures of the lattice paper, section VI, with our policy and both bounds added; all tasks are synthetic."""

from fpga_pool.experiments.figures.lattice import small, workloads
from fpga_pool.experiments.figures.lattice import workloads as irregularity

#: By number.
EXPERIMENTS = (irregularity.EXPERIMENT, workloads.WORKLOADS_EXPERIMENT, small.EXPERIMENT)
