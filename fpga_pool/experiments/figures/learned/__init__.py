"""The figures of the learned placement paper, section 5."""

from fpga_pool.experiments.figures.learned import convergence, throughput

#: By number.
EXPERIMENTS = tuple(
    sorted(
        (*convergence.EXPERIMENTS, *throughput.EXPERIMENTS),
        key=lambda experiment: experiment.number,
    )
)
