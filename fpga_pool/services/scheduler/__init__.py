"""The pool scheduler: it plans, commits, commands the agents, and reconciles differences."""
