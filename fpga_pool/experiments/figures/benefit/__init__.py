"""The figures of the benefit paper, section V, with our policy and the bound added, and what its two results hang on.

===========  ====================================================================================
`runs`       one simulation, and what is drawn of it
`metric`     figure 3: by throughput and by benefit
`replacing`  figure 4: with and without replacement
`random`     5: both over random catalogues
`loads`      6: share of the bound, by how long a load takes
`changing`   7: a mix that changes, and a tenant whose workload loses its benefit
`deciding`   8: what decides the two results: how speedup and I/O go together, and the hold
`optimal`    9: share of the clairvoyant optimum
`ratios`     10: ours over the better of the paper's two, for many seeds
`foresight`  11: what it is worth to know the jobs to come
===========  ====================================================================================

Figures 3 and 4 are the paper's, the others ours.
"""

from fpga_pool.experiments.figures.benefit import (
    changing,
    deciding,
    foresight,
    loads,
    metric,
    optimal,
    random,
    ratios,
    replacing,
)

#: By number.
EXPERIMENTS = tuple(
    module.EXPERIMENT for module in (metric, replacing, random, loads, changing, deciding, optimal, ratios, foresight)
)
