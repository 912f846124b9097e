"""L2: the pool's slots in Placement, and allocations read from it; the only importer of Placement's API."""
