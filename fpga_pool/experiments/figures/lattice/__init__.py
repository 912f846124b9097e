"""The figures of the lattice paper, section VI, with our policy and both bounds added.

==============  =================================================
`runs`          one problem, scheduled by all policies
`irregularity`  figure 3: share of the bound by irregularity
`workloads`     figure 4: share of the bound by number of workloads
`small`         figure 5, ours: a few tasks beside the optimum
==============  =================================================

All tasks are synthetic: the paper publishes none.
"""

from fpga_pool.experiments.figures.lattice import irregularity, small, workloads

#: By number.
EXPERIMENTS = tuple(module.EXPERIMENT for module in (irregularity, workloads, small))
