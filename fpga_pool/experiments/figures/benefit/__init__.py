"""Figures 3 and 4 of the benefit paper, section V, and ours: the bound, other mixes, what the results depend on."""

from fpga_pool.experiments.figures.benefit import by_cell, changing, deciding, foresight, optimal, published, variations

#: By number.
EXPERIMENTS = (
    published.EXPERIMENT,
    published.REPLACING_EXPERIMENT,
    variations.EXPERIMENT,
    by_cell.EXPERIMENT,
    changing.CHANGING_EXPERIMENT,
    deciding.DECIDING_EXPERIMENT,
    optimal.EXPERIMENT,
    by_cell.RATIOS_EXPERIMENT,
    foresight.EXPERIMENT,
)
