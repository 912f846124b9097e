"""Runners: what launches, moves and ends the processes of gangs on a host."""
