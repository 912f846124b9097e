"""Plans that are improved or proven: the portfolio behind `makespan`, local search, exact models."""
