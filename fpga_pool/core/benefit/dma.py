"""How the slots of a card share its DMA engine."""

from collections.abc import Sequence


def fair_rates(demands_bps: Sequence[float], capacity_bps: float) -> list[float]:
    """Return the progress rate of each job (1 = full speed) where the DMA is shared max-min fairly.

    Nobody gets more than it asks for, and nobody less than an equal part of what the others leave; a job progresses
    with the share of its demand that it gets.
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
