"""Gangs: admission, decisions, and reports of agents about them."""
