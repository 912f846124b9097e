"""Enforcement of planned rates on the outgoing flows of this host with an egress driver.

A client reports its stream when it requests a ticket, the scheduler forwards this to the agent, and from then on the
agent sets the rates, whatever the client does. The flows are in the journal, so that a restarted agent lifts all limits
of the previous one and sets those that are still valid.
"""

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence

from fpga_pool.drivers.egress.base import EgressDriver, Flow, LimitedFlow
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput
from fpga_pool.model.fields import require_address, short_reason
from fpga_pool.model.messages.agents import Command, Outcome, ReleaseFlow, ShapeFlow
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.clock import Clock
from fpga_pool.transfer.schedule import RateSchedule

LOG = logging.getLogger(__name__)

#: How long a flow is still limited after its planned end; normally it is released earlier.
LINGER_S = 3600.0
#: A stopped flow is opened this long before its planned start: packets that a punctual sender sends while the flow is
#: stopped are lost, and TCP notices that late.
HEAD_START_S = 0.2
#: The longest time between two updates of the flows.
POLL_S = 1.0
#: How long the thread may take to end.
STOP_S = 5.0


class FlowShaper:
    """Follows the schedules of all flows of one host, in one thread.  `start` and `stop` are called once each."""

    def __init__(self, driver: EgressDriver, journal: Journal, clock: Clock) -> None:
        self._driver = driver
        self._journal = journal
        self._clock = clock
        self._flows: dict[str, tuple[ShapeFlow, RateSchedule]] = {}
        self._rates: dict[str, float] = {}
        self._trouble = ""
        #: Pending actions; None ends the thread.
        self._wanted: queue.SimpleQueue[ShapeFlow | ReleaseFlow | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="shaper", daemon=True)

    def start(self) -> None:
        """Lift the limits of an earlier agent, set those that are still valid, and follow the schedules."""
        self._attempt(self._driver.reset)
        for action in self._journal.flows():
            self._wanted.put(action)
        self._thread.start()

    def stop(self) -> None:
        """Lift every limit; the journal keeps the flows for the next start.

        The thread lifts them after the change in progress, so that no limit remains even if that change takes long.
        """
        self._wanted.put(None)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            LOG.warning("egress: a change takes long; all limits are lifted after it")

    def execute(self, command: Command, action: ShapeFlow | ReleaseFlow) -> Outcome:
        """Execute a command for a flow once; its action is in the journal when this returns."""
        if self._journal.executed(command):
            return Outcome(command=command.id, outcome="repeated")
        held = self._journal.flow(key(action))
        if held is not None and isinstance(action, ShapeFlow) and action.dispatched_at < held.dispatched_at:
            reason = f"{key(action)} follows a later plan: {action.dispatched_at} is before {held.dispatched_at}"
            return Outcome(command=command.id, outcome="refused", reason=reason)
        try:
            self.take(action)
        except InvalidInput as error:
            return Outcome(command=command.id, outcome="refused", reason=short_reason(str(error)))
        self._journal.note_flow(command, key(action))
        return Outcome(command=command.id, outcome="accepted")

    def take(self, action: ShapeFlow | ReleaseFlow) -> None:
        """Limit a stream to its plan, which replaces an earlier plan or stream of the same attempt, or lift its limit.

        The caller records the action in the journal.  Raises InvalidInput if the plan or the address is invalid.
        """
        if isinstance(action, ShapeFlow):
            RateSchedule(action.transfer)
            try:  # a host may report a name as its address; flows to it cannot be limited
                require_address("destination_address", action.destination_address)
            except ValueError as error:
                raise InvalidInput(str(error)) from None
        self._wanted.put(action)

    def _run(self) -> None:
        pause_s = 0.0
        try:
            while self._carry_out(pause_s):
                pause_s = min(self._follow(), POLL_S)
        finally:
            self._attempt(self._driver.reset)

    def _carry_out(self, timeout_s: float) -> bool:
        """Wait for actions, and carry out all that are pending; return False when the thread is to end."""
        with contextlib.suppress(queue.Empty):
            action = self._wanted.get(timeout=timeout_s) if timeout_s > 0 else self._wanted.get_nowait()
            while action is not None:
                if isinstance(action, ShapeFlow):
                    self._hold(action)
                else:
                    self._forget(key(action))
                    self._forget_for_good(key(action))
                action = self._wanted.get_nowait()
            return False
        return True

    def _hold(self, action: ShapeFlow) -> None:
        """Follow a plan from now on; a stream that is already limited gets the new rates."""
        held = self._flows.get(key(action))
        if held is not None and _flow(held[0]) != _flow(action):
            self._forget(key(action))
        self._flows[key(action)] = action, RateSchedule(action.transfer)

    def _follow(self) -> float:
        """Set the current rate of every flow; return the seconds until the next change."""
        now_s = self._clock()
        next_s = POLL_S
        opened, changed = [], {}
        for name, (action, schedule) in list(self._flows.items()):
            t_s = now_s - action.dispatched_at
            if schedule.segments and t_s > schedule.segments[-1].end_s + LINGER_S:
                self._forget(name)
                self._forget_for_good(name)
                continue
            rate_bps = schedule.rate_at(t_s) or schedule.rate_at(t_s + HEAD_START_S)
            if name not in self._rates:
                opened.append(LimitedFlow(_flow(action), rate_bps))
            elif self._rates[name] != rate_bps:
                changed[name] = rate_bps
            soon_s = t_s + HEAD_START_S
            next_s = min(next_s, schedule.next_change_s(t_s) - t_s, schedule.next_change_s(soon_s) - soon_s)
        if changed and not self._set(changed):
            # The kernel has lost one of the flows. Opening all of them again sets their rates.
            opened += [LimitedFlow(_flow(self._flows[name][0]), rate_bps) for name, rate_bps in changed.items()]
        self._open(opened)
        return next_s

    def _set(self, rates_bps: dict[str, float]) -> bool:
        if not self._attempt(lambda: self._driver.set_rates(rates_bps)):
            for name in rates_bps:
                del self._rates[name]
            return False
        self._rates |= rates_bps
        return True

    def _open(self, limits: Sequence[LimitedFlow]) -> None:
        """Open all flows in one call, or one by one if any is refused; forget flows that can never be limited."""
        if not limits:
            return
        try:
            self._driver.open_all(limits)
        except (FpgaPoolError, OSError) as error:
            self._complain(str(error))
            if len(limits) > 1:
                for limit in limits:
                    self._open([limit])
            elif isinstance(error, InvalidInput):  # this host has no device for it: a tenant may have named any host
                del self._flows[limits[0].flow.key]
                self._forget_for_good(limits[0].flow.key)
        else:
            self._rates |= {limit.flow.key: limit.rate_bps for limit in limits}

    def _forget(self, name: str) -> None:
        if self._flows.pop(name, None) is not None:
            self._rates.pop(name, None)
            self._attempt(lambda: self._driver.close_all([name]))

    def _forget_for_good(self, name: str) -> None:
        self._attempt(lambda: self._journal.forget_flow(name))

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Run a step, and return whether it succeeded; failures are logged and retried, and do not delay flows."""
        try:
            step()
        except (FpgaPoolError, OSError, sqlite3.Error) as error:
            self._complain(str(error))
            return False
        return True

    def _complain(self, trouble: str) -> None:
        """Log a problem once, until it changes."""
        level = logging.DEBUG if trouble == self._trouble else logging.ERROR
        LOG.log(level, "egress: %s", trouble)
        self._trouble = trouble


def key(action: ShapeFlow | ReleaseFlow) -> str:
    """Return the name of a stream; there is one stream per attempt of a job."""
    return f"{action.job}.{action.attempt}"


def _flow(action: ShapeFlow) -> Flow:
    return Flow(
        key=key(action),
        source_address=action.source_address,
        source_port=action.source_port,
        destination_address=action.destination_address,
        destination_port=action.destination_port,
        server=action.server,
    )
