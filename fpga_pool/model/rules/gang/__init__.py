"""Gangs: admission, decisions, what their agents report."""
