"""The heartbeats of an agent: which are sent in full, which as life signs, and which are left out."""

import threading
import time
from collections.abc import Callable

from fpga_pool.drivers.host_meter import HostMeter
from fpga_pool.model.messages.agents import Heartbeat
from fpga_pool.model.values import changed
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.services.clock import SteadyClock


class Heartbeats:
    """Sends the heartbeats that `observe` returns, one at a time, and follows the pool's clock.

    A full one goes to a scheduler, which answers it.  While it would be the same again and the host has no work, a life
    sign is enough for a while, which no scheduler answers.
    """

    def __init__(
        self,
        scheduler: SchedulerAPI,
        observe: Callable[[], Heartbeat],
        meter: HostMeter,
        clock: SteadyClock,
        interval_s: float,
    ) -> None:
        self._scheduler = scheduler
        self._observe = observe
        self._meter = meter
        self._clock = clock
        self._interval_s = interval_s
        #: Held while one is observed and sent: one without unsent reports must not be overtaken by a later report.
        self.turn = threading.Lock()
        #: Content of the last one, if a scheduler accepted it, without what changes in each of them.
        self._accepted: Heartbeat | None = None
        #: When one was answered, and when one or a life sign was sent, by the monotonic clock.
        self._answered_s = self._sent_s = time.monotonic()
        #: In how many seconds after these times the next full one, and any sign, is due.
        self._full_due_s = self._due_s = 0.0

    def age_s(self) -> float:
        """Return the seconds since a scheduler has accepted one, or since the start."""
        return time.monotonic() - self._answered_s

    def pause_s(self) -> float:
        """Return the seconds until the next one; twice as many if there is no work, and none is due for long."""
        last, pause_s = self._accepted, self._interval_s
        if last is None or _has_work(last):
            return pause_s
        return max(pause_s, min(2 * pause_s, self._due_s / 5))

    def send(self) -> None:
        """Send a full one now; raise what `SchedulerAPI.heartbeat` raises."""
        with self.turn:
            self._send(self._observe())

    def send_if_due(self) -> bool:
        """Send a full one if it says something new or is due, or a life sign if one is due; return False for neither.

        Raises what `SchedulerAPI.heartbeat` and `SchedulerAPI.alive` raise.
        """
        with self.turn:
            heartbeat, next_s = self._observe(), self.pause_s()
            if _content(heartbeat) != self._accepted:
                self._send(heartbeat)
            elif time.monotonic() - self._sent_s + next_s <= self._due_s:
                return False
            elif _has_work(heartbeat) or self.age_s() + next_s > self._full_due_s:
                self._send(heartbeat)
            else:
                content, self._accepted = self._accepted, None
                self._scheduler.alive(changed(heartbeat, counters=self._meter.measure(self._clock())))
                self._accepted, self._sent_s = content, time.monotonic()
            return True

    def _send(self, heartbeat: Heartbeat) -> None:
        self._accepted, asked_at = None, self._clock()
        answer = self._scheduler.heartbeat(changed(heartbeat, counters=self._meter.measure(asked_at)))
        self._clock.agree(answer.at, asked_at, self._clock())
        self._accepted = _content(heartbeat)
        self._answered_s = self._sent_s = time.monotonic()
        self._due_s, self._full_due_s = answer.due_s, answer.full_due_s


def _content(heartbeat: Heartbeat) -> Heartbeat:
    return changed(heartbeat, beat=0, at=0.0)


def _has_work(heartbeat: Heartbeat) -> bool:
    return bool(heartbeat.jobs or heartbeat.processes or heartbeat.unreported)
