"""Drivers of the two tiers of guests on one pCPU: the background runs when the foreground idles (two-tier paper)."""
