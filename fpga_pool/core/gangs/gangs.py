"""What is known of gangs before they run, and what a policy can have done with them."""

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fpga_pool.core.types import Floats, Ints, floats, ints


class How(Enum):
    """How a gang gets to where it shall run."""

    #: From the queue to the foreground, or to the background.
    START = "start"
    START_BEHIND = "start behind"
    #: From the queue to the background, where it has the higher priority for a trial (`Tiers.trial_s`).
    TRY = "try"
    #: From the background to the foreground: by a swap of priorities where it sits, by a migration that keeps its
    #: progress, or by a kill that loses it.
    SWAP = "swap"
    MIGRATE = "migrate"
    RESTART = "restart"


class Move(NamedTuple):
    """One decision: the gang, how it is moved, and the processor of each of its processes."""

    gang: int
    how: How
    processors: Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Gangs:
    """G gangs in order of arrival; their indices break all ties."""

    #: (G,) processes.
    width: Ints
    #: (G,) requested run time: a limit for decisions only, nobody is killed for it.
    estimate_s: Floats
    #: CPU usage of a process on a processor of its own: (G,) one figure for all processes of a gang, or (sum of
    #: widths,) one for each, gang after gang and falling within each gang.
    usage: Floats
    #: (G,) who sent each, -1 = nobody knows; None = nobody knows of any.
    user: Ints | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", ints(self.width))
        for name in ("estimate_s", "usage"):
            object.__setattr__(self, name, floats(getattr(self, name)))
        if self.user is not None:
            object.__setattr__(self, "user", ints(self.user))
        count = len(self.width)
        if (self.width < 1).any():
            raise ValueError("width: expected 1 or more")
        if self.estimate_s.shape != (count,) or not (np.isfinite(self.estimate_s) & (self.estimate_s > 0)).all():
            raise ValueError(f"estimate_s: expected {count} finite numbers above 0")
        if self.user is not None and self.user.shape != (count,):
            raise ValueError(f"user: expected {count} numbers, found {self.user.shape}")
        if self.usage.shape not in ((count,), (int(self.width.sum()),)):
            raise ValueError(f"usage: expected {count} or {self.width.sum()} numbers, found {self.usage.shape}")
        if not ((self.usage > 0) & (self.usage <= 1)).all():
            raise ValueError("usage: expected shares of a processor, above 0 and 1 at most")
        first = np.cumsum(self.width)[:-1]
        if self.per_process and (np.delete(np.diff(self.usage), first - 1) > 0).any():
            raise ValueError("usage: expected the processes of a gang in falling order")

    @cached_property
    def busiest(self) -> Floats:
        """(G,) the usage of the busiest process of each."""
        return self.usage[np.cumsum(self.width) - self.width] if self.per_process else self.usage

    @property
    def per_process(self) -> bool:
        """Whether each process has a usage of its own."""
        return len(self.usage) != len(self.width)
