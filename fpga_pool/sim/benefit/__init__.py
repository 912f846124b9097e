"""Online jobs on a pool of slots in simulated time (benefit paper)."""
