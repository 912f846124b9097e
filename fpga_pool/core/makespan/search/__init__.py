"""Improved or proven plans: the portfolio behind `makespan`, local search, exact models."""
