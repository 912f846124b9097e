"""Figures 2 to 9 of the makespan paper (makespan of a batch), section 5, with the curve of `makespan` added.

===============  ======================================================================
`workload`       the jobs and hosts of section 5.2
`planners`       who plans
`testbed`        figure 2
`hosts`          figure 3
`load`           figure 4
`throughput`     figure 5, with `arrivals`: batches that come one after the other
`mixture`        figure 6
`fairness`       figure 7
`estimates`      figure 8, with `reality`: plans that meet other times than they expect
`planning_time`  figure 9
`small`          figure 10, ours: small batches beside the optimum
===============  ======================================================================
"""

from fpga_pool.experiments.figures.makespan import (
    estimates,
    fairness,
    hosts,
    load,
    mixture,
    planning_time,
    small,
    testbed,
    throughput,
)

#: By number.
EXPERIMENTS = tuple(
    module.EXPERIMENT
    for module in (testbed, hosts, load, throughput, mixture, fairness, estimates, planning_time, small)
)
