"""L1: what the pool's objects are and how they live; no I/O."""
