"""Slots of virtual machines."""
