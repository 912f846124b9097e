"""Gangs over time: traces and models of workloads, and what a policy makes of them."""
