"""Transfers: the fluid model, residual bandwidth, and results."""
