"""Interference laws: how much the subtasks that run together on a unit slow each other down.

A law is named by an entry point of the group `fpga_pool.interference_laws` and made from the other keys of its table in
the scenario.  This module has laws of two families: saturation of shared resources, and pairwise pressure.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from fpga_pool.core.types import Floats

#: Entry-point group of the laws.
GROUP = "fpga_pool.interference_laws"


@runtime_checkable
class Law(Protocol):
    """The slowdown of each of several subtasks by the others."""

    def slowdowns(self, demands: Floats) -> Floats:
        """Return the factor by which each subtask takes longer than alone, shape (k,), at least 1.

        `demands` are shares of the unit's capacity of each resource, shape (k, R).
        """
        ...


class Saturation:
    """All subtasks are slowed down equally, by the resource in greatest demand, and slightly by each companion.

    The slowdown is max(1, greatest total demand) ** `exponent` * (1 + `companion` * (k - 1)).
    """

    def __init__(self, *, exponent: float = 1.5, companion: float = 0.03) -> None:
        _require("exponent", exponent, 0)
        _require("companion", companion, 0)
        self.exponent, self.companion = exponent, companion

    def slowdowns(self, demands: Floats) -> Floats:
        count = len(demands)
        total = demands.sum(axis=0).max(initial=1.0)
        return np.full(count, total**self.exponent * (1 + self.companion * (count - 1)))


class Bottleneck:
    """Each subtask is slowed down by the most demanded of the resources that it needs: fair shares without loss."""

    def slowdowns(self, demands: Floats) -> Floats:
        totals = np.where(demands > 0, demands.sum(axis=0), 1.0)
        slowdown: Floats = totals.max(axis=1, initial=1.0)
        return slowdown


class Pressure:
    """Each subtask is slowed down by every companion: 1 + `weight` * sum of the products of their demands.

    No resource saturates. Two light subtasks interfere a little, and no packing avoids it.
    """

    def __init__(self, *, weight: float = 1.0) -> None:
        _require("weight", weight, 0)
        self.weight = weight

    def slowdowns(self, demands: Floats) -> Floats:
        products = demands @ demands.T
        slowdown: Floats = 1 + self.weight * (products.sum(axis=1) - products.diagonal())
        return slowdown


def _require(name: str, value: float, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < np.inf:
        raise ValueError(f"{name}: expected a finite number, {least:g} or more, found {value!r}")
