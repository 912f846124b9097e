"""Runners: drivers that launch, move and end the processes of gangs on a host."""
