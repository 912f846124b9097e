"""L2: drivers of the compute node, one stevedore group per family."""
