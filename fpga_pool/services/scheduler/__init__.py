"""The pool scheduler: it plans, commits decisions, sends commands to the agents, and reconciles differences."""
