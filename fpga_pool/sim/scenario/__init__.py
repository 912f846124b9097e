"""Scenarios: files that describe a simulated pool and the events in it (doc/source/user/scenarios)."""
