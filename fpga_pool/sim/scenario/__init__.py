"""Scenarios: files that say what a simulated pool is made of and what happens to it (doc/source/user/scenarios)."""
