"""The tiers of a host: which guest is on which pCPU, in which tier, and how that changes while they run."""
