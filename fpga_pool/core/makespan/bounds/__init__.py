"""Lower bounds on the makespan, and the relaxation that rounding starts from."""
