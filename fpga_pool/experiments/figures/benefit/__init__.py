"""Figures 3 and 4 of the benefit paper, section V, and ours: the bound, other mixes, what the results depend on."""

from fpga_pool.experiments.figures.benefit import by_cell, foresight, optimal, published, variations

#: By number.
EXPERIMENTS = (
    published.EXPERIMENT,
    published.REPLACING_EXPERIMENT,
    variations.RANDOM_EXPERIMENT,
    by_cell.EXPERIMENT,
    variations.CHANGING_EXPERIMENT,
    variations.DECIDING_EXPERIMENT,
    optimal.EXPERIMENT,
    by_cell.RATIOS_EXPERIMENT,
    foresight.EXPERIMENT,
)
