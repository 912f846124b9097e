"""Cases of a parametrized test: a few for every run, more for a long one."""

from collections.abc import Collection, Iterable

import pytest


def seeds(quick: int, long: int) -> list[object]:
    """Return the first `long` seeds as parameters; those from `quick` on are marked long."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(quick, long))]


def names(every: Iterable[str], slow: Collection[str]) -> list[object]:
    """Return names as parameters; the slow ones are marked long."""
    return [pytest.param(name, marks=pytest.mark.long) if name in slow else name for name in every]
