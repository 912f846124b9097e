"""Gangs on two tiers (two-tier paper): what waits and runs, the policies, and the progress of both tiers."""
