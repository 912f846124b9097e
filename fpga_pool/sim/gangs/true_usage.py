"""What processes use in truth, where that is not what their gangs say."""

import numpy as np

from fpga_pool.core.gangs.progress import Usage
from fpga_pool.core.gangs.tiers import IN_FRONT, Tiers
from fpga_pool.core.types import Floats


class TrueUsage:
    """What processes use in truth, where that is not what their gangs say."""

    def __init__(self, view: Tiers, usage: Floats) -> None:
        self._view = view
        per_process = len(usage) != len(view.width)
        self._of = np.split(usage, np.cumsum(view.width)[:-1]) if per_process else usage.tolist()
        self.usage = Usage(np.zeros(view.processors), np.zeros(view.processors))

    def enter(self, gang: int) -> None:
        """Note a gang that has got to where it runs."""
        self._tier(gang)[self._view.placed[gang]] = self._of[gang]

    def leave(self, gang: int) -> None:
        """Note a gang that is about to leave where it runs, if it does."""
        self._tier(gang)[self._view.placed[gang]] = 0.0

    def _tier(self, gang: int) -> Floats:
        return self.usage.front if self._view.tier[gang] == IN_FRONT else self.usage.behind
