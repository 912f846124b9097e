"""The figures of the two-tier paper, section 3, with our policy, Lublin's model and a trace added.

==========  =========================================================================================
`runs`      workloads, one simulation, and what is drawn of it
`compare`   what the paper says of its policies beside ours, with intervals over the seeds
`loads`     figures 6, 7 and 9 to 12, 15 and 16: response time and slowdown over the load
`moves`     figure 8: migrations over the load
`costs`     figures 13 and 14: what a migration may cost
==========  =========================================================================================

Figures 6 to 14 are the paper's, the others ours.
"""

from fpga_pool.experiments.figures.gangs import costs, loads, moves

#: By number.
EXPERIMENTS = tuple(
    sorted((*loads.EXPERIMENTS, moves.EXPERIMENT, *costs.EXPERIMENTS), key=lambda experiment: experiment.number)
)
