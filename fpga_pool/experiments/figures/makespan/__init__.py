"""Figures 2 to 9 of the makespan paper with the curve of `makespan` added, and small batches beside the optimum."""

from fpga_pool.experiments.figures.makespan import estimates, hosts, mixture, small, throughput

#: By number.
EXPERIMENTS = (
    small.TESTBED_EXPERIMENT,
    hosts.EXPERIMENT,
    hosts.LOAD_EXPERIMENT,
    throughput.EXPERIMENT,
    mixture.EXPERIMENT,
    mixture.FAIRNESS_EXPERIMENT,
    estimates.EXPERIMENT,
    estimates.PLANNING_TIME_EXPERIMENT,
    small.EXPERIMENT,
)
