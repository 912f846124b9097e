"""Slots for instances: candidates, costs, claims and explanations."""
