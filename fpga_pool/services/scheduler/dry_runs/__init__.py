"""Dry runs: plans of work that is not created."""
