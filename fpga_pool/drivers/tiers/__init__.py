"""Drivers of two tiers of guests on one pCPU: one runs, the other gets what it leaves idle (two-tier paper)."""
