"""Inner loops of the planners, compiled by numba where it is installed."""
