"""Drivers that limit the rate of each flow from a requester's host; `base` defines their interface."""
