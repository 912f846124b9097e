"""Layer 2: drivers of the compute node, with one stevedore group per family of drivers."""
