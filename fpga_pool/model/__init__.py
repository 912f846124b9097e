"""L1: the objects of the pool and the rules by which they change; no I/O."""
