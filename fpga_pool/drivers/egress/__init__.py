"""Drivers that limit the rate of each flow from a requester's host: `base` is the interface, one module per driver."""
