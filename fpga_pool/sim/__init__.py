"""Simulation without a cloud: problem and plan files, and engines that drive the same policies as the services."""
