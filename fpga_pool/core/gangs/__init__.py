"""Gangs on two tiers (paper 002): what waits and runs, the policies, and the progress of both tiers."""
