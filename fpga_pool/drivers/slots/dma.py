"""The DMA engine that the slots of a card share: max-min fair, as a fluid.  No clock: time is an argument."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def max_min_shares(capacity_bps: float, demands_bps: Sequence[float]) -> list[float]:
    """Divide a capacity: nobody gets more than asked for, and what some leave over is shared equally by the others."""
    shares = [0.0] * len(demands_bps)
    left_bps = capacity_bps
    by_demand = sorted(range(len(demands_bps)), key=lambda i: demands_bps[i])
    for served, i in enumerate(by_demand):
        shares[i] = min(demands_bps[i], left_bps / (len(by_demand) - served))
        left_bps -= shares[i]
    return shares


@dataclass(slots=True)
class _Flow:
    demand_bps: float
    #: Seconds of work left, at full speed.
    remaining_s: float
    #: Work per second now: 1 = full speed.
    pace: float = 1.0


class SharedDma:
    """Jobs on one DMA engine; each slows down while its share is below its demand.

    A job that gets the share s of its demand d progresses at pace s / d, so a job's speed changes whenever another
    comes or goes.  Callers pass times that never go back.
    """

    def __init__(self, capacity_bps: float) -> None:
        self._capacity_bps = capacity_bps
        self._flows: dict[str, _Flow] = {}
        self._now_s = -math.inf

    def start(self, key: str, demand_bps: float, work_s: float, now_s: float) -> None:
        """Add a job that would take `work_s` alone."""
        self.advance(now_s)
        self._flows[key] = _Flow(demand_bps, work_s)
        self._share()

    def stop(self, key: str, now_s: float) -> None:
        """Remove a job, if it is still active."""
        self.advance(now_s)
        if self._flows.pop(key, None):
            self._share()

    def is_active(self, key: str) -> bool:
        """Say whether the job had work left at the last `advance`."""
        return key in self._flows

    def left_s(self, key: str) -> float:
        """Return the seconds of work, at full speed, that the job had left at the last `advance`."""
        return self._flows[key].remaining_s if key in self._flows else 0.0

    def next_end_s(self) -> float:
        """Return when the next job ends if none comes or goes before; inf if there is none."""
        return self._next_end()[0]

    def advance(self, now_s: float) -> None:
        """Let time pass; jobs that end on the way leave their share to the others from that moment on."""
        while (end := self._next_end())[0] <= now_s:
            self._progress(end[0])
            del self._flows[end[1]]
            self._share()
        self._progress(now_s)

    def _next_end(self) -> tuple[float, str]:
        return min(
            ((self._now_s + flow.remaining_s / flow.pace, key) for key, flow in self._flows.items()),
            default=(math.inf, ""),
        )

    def _progress(self, now_s: float) -> None:
        for flow in self._flows.values():
            flow.remaining_s = max(0.0, flow.remaining_s - (now_s - self._now_s) * flow.pace)
        self._now_s = now_s

    def _share(self) -> None:
        flows = list(self._flows.values())
        shares = max_min_shares(self._capacity_bps, [flow.demand_bps for flow in flows])
        for flow, share_bps in zip(flows, shares, strict=True):
            flow.pace = share_bps / flow.demand_bps if flow.demand_bps else 1.0
