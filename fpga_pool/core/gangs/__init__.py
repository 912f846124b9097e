"""Gangs on two tiers (two-tier paper): queues and processors, the policies, and the progress of both tiers."""
