"""L0: the pure scheduling core; numpy and solvers only, no I/O, no clocks, no global random state."""
