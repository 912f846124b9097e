"""The figures of the learned placement paper, section 5."""

from fpga_pool.experiments.figures.learned import convergence, throughput, usage

#: By number.
EXPERIMENTS = tuple(
    sorted(
        (*convergence.EXPERIMENTS, *throughput.EXPERIMENTS, *usage.EXPERIMENTS),
        key=lambda experiment: experiment.number,
    )
)
