"""How much of its pCPU each vCPU uses, from one measurement to the next."""

import time
from collections.abc import Callable, Iterable

from fpga_pool.drivers.tiers.base import TierDriver
from fpga_pool.model.exceptions import FpgaPoolError

#: Measurements closer to each other than this say nothing: the last one stands.
SHORTEST_S = 1.0


class UsageMeter:
    """Remembers the last measurement of each guest; one thread measures, any may read."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last: dict[str, tuple[float, tuple[float, ...]]] = {}
        self._usage: dict[str, tuple[float, ...]] = {}

    def measure(self, driver: TierDriver, instances: Iterable[str]) -> None:
        """Measure these guests, and forget all others."""
        last: dict[str, tuple[float, tuple[float, ...]]] = {}
        usage: dict[str, tuple[float, ...]] = {}
        for instance in instances:
            then = self._last.get(instance)
            if then is not None and self._now_s() - then[0] < SHORTEST_S:
                last[instance], usage[instance] = then, self.usage(instance)
                continue
            try:
                now = self._now_s(), driver.cpu_times_s(instance)
            except FpgaPoolError:  # it is about to end; or its driver tells of it elsewhere
                continue
            last[instance] = now
            if then is not None and len(then[1]) == len(now[1]):
                length_s = now[0] - then[0]
                usage[instance] = tuple(
                    min(1.0, max(0.0, after_s - before_s) / length_s)
                    for before_s, after_s in zip(then[1], now[1], strict=True)
                )
        self._last, self._usage = last, usage

    def usage(self, instance: str) -> tuple[float, ...]:
        """Return the share of its pCPU that each vCPU used, 0 to 1; empty if that is not known."""
        return self._usage.get(instance, ())
