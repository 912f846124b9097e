"""Figures 3 and 4 of the benefit paper, section V, and ours: bounds, other mixes, causes of the paper's results."""

from fpga_pool.experiments.figures.benefit import by_cell, foresight, optimal, variations

#: In order of their numbers.
EXPERIMENTS = (
    by_cell.PUBLISHED_EXPERIMENT,
    by_cell.REPLACING_EXPERIMENT,
    variations.RANDOM_EXPERIMENT,
    by_cell.EXPERIMENT,
    variations.CHANGING_EXPERIMENT,
    variations.DECIDING_EXPERIMENT,
    optimal.EXPERIMENT,
    by_cell.RATIOS_EXPERIMENT,
    foresight.EXPERIMENT,
)
