"""Transfers: fluid, with guaranteed rates, on what other transfers leave, and of results."""
