"""Progress of gangs on two tiers (section 3.2): the rate of a gang is that of its slowest process."""

import uuid
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.core.gangs.tiers import IN_FRONT, Tiers
from fpga_pool.core.types import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Losses and gains of gangs on two tiers, one value for all processes of a gang."""

    #: (G,) share lost in the foreground if any process shares its processor.
    loss: Floats
    #: (G,) share of the idle cycles used in the background.
    used: Floats
    #: Actual usage of processes, in the form of `Gangs.usage`; None if it is the declared one.
    usage: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSaid:
    """Declared usage of gangs (section 3.5.1)."""

    #: Whether nothing is declared: wider gangs are then assumed to use the middle of the range.
    unknown: bool = False
    #: Maximum relative error of the declared usage, up or down, uniform; gangs of one process are known to use all.
    error: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.error < 1:
            raise ValueError(f"error: expected a share, 0 or more and below 1, got {self.error!r}")


class Usage(NamedTuple):
    """(processors,) usage of the process in each tier, 0 if there is none."""

    front: Floats
    behind: Floats


def rate(view: Tiers, gang: int, loss: float, used: float, usage_threshold: float, usage: Usage | None = None) -> float:
    """Return the rate of a running gang, which is that of its slowest process.

    In the foreground it loses only if it shares a processor.  In the background it has all of a processor whose
    foreground is idle, and part of the idle cycles of others.  `usage` is the actual usage if the view has another.
    """
    tier, placed = view.tier[gang], view.placed[gang]
    front, behind = (view.front_usage, view.behind_usage) if usage is None else usage
    if tier == IN_FRONT or gang in view.trying:
        shared = view.behind if tier == IN_FRONT else view.front
        if not view.processes_behind or view.scans.all_idle(shared, placed):
            return 1.0
        if tier == IN_FRONT and view.trying:
            tried = np.isin(view.behind[placed], list(view.trying))
            if tried.any():
                given: float = view.scans.behind_rate(behind, front, placed[tried], used, usage_threshold)
                return min(1.0 - loss, given)
        return 1.0 - loss
    found: float = view.scans.behind_rate(front, behind, view.placed[gang], used, usage_threshold)
    return found


def draw_usage(width: Ints, params: ProgressParams, rng: np.random.Generator, *, per_process: bool = False) -> Floats:
    """Return the usage of gangs, drawn by the rules of section 3.1."""
    of = np.repeat(np.arange(len(width)), width) if per_process else np.arange(len(width))
    usage = rng.uniform(*params.usage, len(of))
    usage[width[of] == 1] = 1.0
    return usage[np.lexsort((-usage, of))] if per_process else usage


def say_usage(usage: Floats, width: Ints, said: UsageSaid, params: ProgressParams, rng: np.random.Generator) -> Floats:
    """Return the declared usage for an actual usage; both have the form of `Gangs.usage`."""
    of = np.arange(len(width)) if len(usage) == len(width) else np.repeat(np.arange(len(width)), width)
    several = width[of] > 1
    found = usage.copy()
    if said.unknown:
        found[several] = sum(params.usage) / 2
    elif said.error:
        wrong = usage * (1 + rng.uniform(-said.error, said.error, len(usage)))
        found[several] = np.clip(wrong, 0.01, 1.0)[several]
    return found


def draw_shares(width: Ints, params: ProgressParams, rng: np.random.Generator) -> Shares:
    """Return the losses and gains of gangs, drawn by the rules of section 2.1."""
    count = len(width)
    loss, single = rng.uniform(*params.loss, count), rng.uniform(*params.single, count)
    several = rng.normal(params.several_mean, params.several_deviation, count)
    low, high = params.several
    while len(outside := np.flatnonzero((several < low) | (several > high))):
        several[outside] = rng.normal(params.several_mean, params.several_deviation, len(outside))
    return Shares(loss, np.where(width == 1, single, several))


def shares_of(name: str, width: int, params: ProgressParams) -> tuple[float, float]:
    """Return the loss and the used share of the gang with this name: drawn as above, and always the same for a name."""
    rng = np.random.default_rng(uuid.uuid5(uuid.NAMESPACE_OID, name).int)
    shares = draw_shares(np.array([width]), params, rng)
    return float(shares.loss[0]), float(shares.used[0])
