"""Gangs: admission, decisions, and reports of their agents."""
