"""How fast inputs arrive: a flow is measured where it ends, of any sender and under any limit."""

import threading
import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from fpga_pool.model.messages.agents import MOST_FLOWS, ObservedFlow

#: Bytes of a shorter time say little.
SHORTEST_S = 0.1


@dataclass(slots=True)
class _Measured:
    """What had come at a moment, what has come now, and the rate up to that moment; None = not known yet."""

    at_s: float
    then_bytes: int
    now_bytes: int
    bps: float | None = None


class FlowMeter:
    """Counts what has come of each input; any thread may call its methods."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._measured: dict[tuple[str, int], _Measured] = {}

    def received(self, job: str, attempt: int, total_bytes: int) -> None:
        """Note how much of an input has come; of a stream that is new, the time begins with this."""
        with self._lock:
            found = self._measured.get((job, attempt))
            if found is None or total_bytes < found.now_bytes:
                self._measured[job, attempt] = _Measured(self._now_s(), total_bytes, total_bytes)
            else:
                found.now_bytes = total_bytes

    def measure(self, waiting: Container[tuple[str, int]]) -> tuple[ObservedFlow, ...]:
        """Return the rates since this was called last; inputs of attempts that do not wait any more are forgotten."""
        now_s = self._now_s()
        with self._lock:
            self._measured = {key: flow for key, flow in self._measured.items() if key in waiting}
            for flow in self._measured.values():
                if (passed_s := now_s - flow.at_s) >= SHORTEST_S:
                    flow.bps = 8.0 * (flow.now_bytes - flow.then_bytes) / passed_s
                    flow.at_s, flow.then_bytes = now_s, flow.now_bytes
        return self.rates()

    def rates(self) -> tuple[ObservedFlow, ...]:
        """Return the rates that were measured last."""
        with self._lock:
            known = [(*key, round(flow.bps)) for key, flow in self._measured.items() if flow.bps is not None]
        return tuple(ObservedFlow(job, attempt, bps) for job, attempt, bps in known[:MOST_FLOWS])
