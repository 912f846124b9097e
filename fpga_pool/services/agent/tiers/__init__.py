"""Tiers of a host: the pCPUs and tier of each guest, and changes while guests run."""
