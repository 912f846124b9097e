"""Improved or proven plans: the portfolio behind the policy `makespan`, local search, and exact models."""
