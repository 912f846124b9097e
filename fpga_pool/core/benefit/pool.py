"""The fixed data of a pool for online policies, the DMA rates on a card, and the moves of a policy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import Floats, Ints, freeze_arrays, require_shapes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OnlinePool:
    """F functions, K kinds of slots (a region kind of a board), C cards, S slots.

    Among equal slots a policy takes those of the first kind, so kinds that other functions need come last.
    """

    functions: tuple[str, ...]
    #: (F,) benefit of a job that runs alone: vCPU equivalents (benefit paper, equation 1).
    speedup: Floats
    #: (F,) whether a running job may be evicted, and whether it then keeps its progress.
    preemptible: NDArray[np.bool_]
    progress_kept: NDArray[np.bool_]
    #: (K, F) whether the function may be loaded there.
    fits: NDArray[np.bool_]
    #: (K, F) DMA rate at full speed, bits per second.
    io_bps: Floats
    #: (K,) seconds to load another function.
    load_s: Floats
    #: (C,) DMA rate that the slots of a card share, bits per second.
    dma_bps: Floats
    #: (S,) card and kind of each slot.
    slot_card: Ints
    slot_kind: Ints

    def __post_init__(self) -> None:
        freeze_arrays(self, real=("speedup", "io_bps", "load_s", "dma_bps"), whole=("slot_card", "slot_kind"))
        for name in ("preemptible", "progress_kept", "fits"):
            mask = np.array(getattr(self, name), dtype=np.bool_)
            mask.setflags(write=False)
            object.__setattr__(self, name, mask)
        self._check()

    def _check(self) -> None:
        kinds, functions = len(self.load_s), len(self.functions)
        expected = {
            "speedup": (functions,), "preemptible": (functions,), "progress_kept": (functions,),
            "fits": (kinds, functions), "io_bps": (kinds, functions), "slot_kind": self.slot_card.shape,
        }  # fmt: skip
        require_shapes(self, expected)
        for name in ("speedup", "dma_bps"):
            array = getattr(self, name)
            if not (np.isfinite(array) & (array > 0)).all():
                raise ValueError(f"{name}: expected finite numbers above 0")
        for name in ("io_bps", "load_s"):
            array = getattr(self, name)
            if not (np.isfinite(array) & (array >= 0)).all():
                raise ValueError(f"{name}: expected finite numbers, 0 or more")
        for name, size in (("slot_card", len(self.dma_bps)), ("slot_kind", kinds)):
            array = getattr(self, name)
            if ((array < 0) | (array >= size)).any():
                raise ValueError(f"{name}: index out of range, expected 0..{size - 1}")

    @property
    def slots(self) -> int:
        """S, the number of slots."""
        return len(self.slot_card)


def fair_rates(demands_bps: Sequence[float], capacity_bps: float) -> list[float]:
    """Return the progress rate of each job (1 = full speed) when the DMA is shared max-min fairly.

    No job gets more than its demand, or less than an equal part of what the others leave.  The rate of a job is the
    share of its demand that it gets.
    """
    rates = [1.0] * len(demands_bps)
    if sum(demands_bps) <= capacity_bps:
        return rates
    left_bps, left = capacity_bps, len(demands_bps)
    for i in sorted(range(left), key=demands_bps.__getitem__):
        share_bps = min(demands_bps[i], left_bps / left)
        if demands_bps[i] > 0:
            rates[i] = share_bps / demands_bps[i]
        left_bps -= share_bps
        left -= 1
    return rates


@dataclass(frozen=True, slots=True)
class Start:
    """Run the job that has waited longest for the slot's function; the slot is idle and holds it."""

    slot: int
    function: int


@dataclass(frozen=True, slots=True)
class Load:
    """Load a function into a slot that is empty, idle, or runs a preemptible job, which then goes to its CPU."""

    slot: int
    function: int


Move = Start | Load
