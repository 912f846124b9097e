"""Figures 2 to 9 of the makespan paper with a curve of `makespan`, and small batches compared with the optimum."""

from fpga_pool.experiments.figures.makespan import hosts, small, throughput, variations

#: In order of their numbers.
EXPERIMENTS = (
    small.TESTBED_EXPERIMENT,
    hosts.EXPERIMENT,
    hosts.LOAD_EXPERIMENT,
    throughput.EXPERIMENT,
    variations.MIXTURE_EXPERIMENT,
    variations.FAIRNESS_EXPERIMENT,
    variations.ESTIMATES_EXPERIMENT,
    variations.PLANNING_TIME_EXPERIMENT,
    small.EXPERIMENT,
)
