"""Simulation of gangs: traces, models of workloads, and policies over time."""
