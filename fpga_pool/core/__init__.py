"""L0: the pure scheduling core. It uses numpy and solvers only: no I/O, no clocks, no global random state."""
