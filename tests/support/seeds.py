"""Seeds of random cases: a few for every run, more for the long one."""

import pytest


def seeds(quick: int, long: int) -> list[object]:
    """Return the first `long` seeds as parameters, of which those from `quick` on are marked long."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(quick, long))]
