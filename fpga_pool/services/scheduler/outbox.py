"""Delivery of committed commands to agents: at least once, in order for each host, hosts independent of each other."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, StaleEpoch
from fpga_pool.model.messages.agents import Command, LoadFunction, Outcome
from fpga_pool.model.objects.pool import Shard
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: A host that does not answer is tried again after a pause that doubles from the first to the second of these.
RETRY_S = (0.5, 10.0)
#: Maximum number of commands in one call.
BATCH = 200
#: If commands have waited for a host for longer, in seconds, loads ahead of jobs are too late; they get no effect.
LOAD_AHEAD_S = 10.0
#: Maximum number of commands read at once, for all hosts.
MOST = 10_000
#: Acknowledged commands are removed together, at this interval or when there are at least BATCH.
REMOVAL_S = 0.5


class Outbox:
    """Sends each host its pending commands; an unreachable host does not delay others."""

    def __init__(self, store: Store, shard: Shard, agents: AgentAPI, clock: Clock) -> None:
        self._store = store
        self._shard = shard
        self._agents = agents
        self._clock = clock
        self._workers = ThreadPoolExecutor(8, thread_name_prefix="outbox")
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        #: Ids of acknowledged commands that are still stored, and the time of the last removal.
        self._acknowledged: dict[str, None] = {}
        self._removed_s = 0.0
        #: Busy hosts for which there may be more commands by now.
        self._left_out: set[str] = set()
        self._pause_s: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        #: By host, the time since which there have always been commands that wait for it.
        self._behind_since: dict[str, float] = {}

    def announce(self, hosts: Iterable[str]) -> None:
        """Notify the agents of the shard's new owner, so that they refuse commands of the former one."""
        for host in hosts:
            self._workers.submit(self._announce, host)

    def _announce(self, host: str) -> None:
        try:
            self._agents.execute(host, self._shard.name, self._shard.epoch, [])
        except (MessagingError, FpgaPoolError) as error:
            LOG.debug("agent %s was not notified of the owner of shard %s: %s", host, self._shard.name, error)

    def dispatch(self, wake: Callable[[], None]) -> bool:
        """Start delivery to every host with waiting commands that is not busy; call `wake` when there may be more.

        Only commands that can be sent now are read: those of one call per host, and none of busy or paused hosts.
        """
        try:
            self._remove(time.monotonic() - REMOVAL_S)
        except StaleEpoch as error:
            LOG.debug("%s", error)  # `Ownership` detects the loss, too
            return False
        now_s = self._clock()
        with self._lock:
            # Commands that were read for a busy host may be delivered by then, so they are left to the next call.
            self._left_out |= self._busy
            left_out = self._busy | {host for host, until in self._not_before.items() if now_s < until}
            acknowledged = list(self._acknowledged)
        by_host: dict[str, list[Command]] = {}
        for command in self._store.undelivered(
            self._shard.name, limit=MOST, per_host=BATCH, but_for=left_out, acknowledged=acknowledged
        ):
            by_host.setdefault(command.host, []).append(command)
        with self._lock:
            for host in self._behind_since.keys() - by_host.keys() - left_out:
                del self._behind_since[host]
            for host in by_host:
                self._behind_since.setdefault(host, now_s)
            self._busy.update(by_host)
        for host, commands in by_host.items():
            self._workers.submit(self._deliver, host, commands, wake)
        return False

    def stop(self) -> None:
        """Stop; undelivered commands stay in the store."""
        self._workers.shutdown(wait=True, cancel_futures=True)
        try:
            self._remove()
        except FpgaPoolError as error:  # the next owner sends them again, which does no harm
            LOG.debug("acknowledged commands of shard %s were not removed: %s", self._shard.name, error)

    def _remove(self, before_s: float = math.inf) -> None:
        """Remove acknowledged commands from the store, if the last removal was before `before_s`, or there are many.

        Raises StaleEpoch if the owner was replaced: its commands may have been refused, and stay for the new owner.
        """
        with self._lock:
            ids = list(self._acknowledged)
        if ids and (self._removed_s <= before_s or len(ids) >= BATCH):
            self._store.delivered(self._shard.name, self._shard.owner, self._shard.epoch, ids)
            self._removed_s = time.monotonic()
            with self._lock:
                for one in ids:
                    del self._acknowledged[one]

    def _deliver(self, host: str, commands: list[Command], wake: Callable[[], None]) -> None:
        try:
            sent = [command if self._in_time(command) else command.without_effect() for command in commands]
            for outcome in self._execute(host, sent):
                if outcome.outcome == "refused":
                    LOG.warning("agent %s refused command %s: %s", host, outcome.command, outcome.reason)
            self._pause_s.pop(host, None)
            with self._lock:
                self._acknowledged.update((command.id, None) for command in commands)
                if len(commands) < BATCH:
                    self._behind_since.pop(host, None)
        except StaleEpoch as error:
            LOG.warning("agent %s: %s", host, error)
            self._pause(host, RETRY_S[1])
        except (MessagingError, FpgaPoolError) as error:
            pause_s = self._pause_s.get(host, RETRY_S[0])
            self._pause_s[host] = min(2 * pause_s, RETRY_S[1])
            self._pause(host, pause_s)
            LOG.warning("commands for agent %s are delayed (%s); next try in %.1f s", host, error, pause_s)
        except Exception:
            LOG.exception("delivery to agent %s failed", host)
            self._pause(host, RETRY_S[1])
        finally:
            with self._lock:
                self._busy.discard(host)
                more = host in self._left_out or len(commands) >= BATCH
                self._left_out.discard(host)
            if more:
                wake()

    def _pause(self, host: str, seconds: float) -> None:
        with self._lock:
            self._not_before[host] = self._clock() + seconds

    def _execute(self, host: str, commands: Sequence[Command]) -> list[Outcome]:
        """Have an agent execute commands; one that it cannot read is replaced by a command without effect."""
        shard = self._shard
        try:
            return self._agents.execute(host, shard.name, shard.epoch, commands)
        except InvalidInput as error:
            if len(commands) > 1:
                half = len(commands) // 2
                return self._execute(host, commands[:half]) + self._execute(host, commands[half:])
            (command,) = commands
            empty = command.without_effect()
            if command == empty:
                raise
            outcomes = self._agents.execute(host, shard.name, shard.epoch, [empty])
            LOG.error(  # noqa: TRY400
                "agent %s cannot read command %s (%s), which is set aside: %s", host, command.id, error, command
            )
            return outcomes

    def _in_time(self, command: Command) -> bool:
        """Return whether a command is not too late; only loads ahead of jobs can be too late.

        They are if a former owner of the shard decided them, or if commands have waited for the host for long.
        """
        if not isinstance(command.action, LoadFunction):
            return True
        behind_s = self._clock() - self._behind_since.get(command.host, math.inf)
        return command.epoch == self._shard.epoch and behind_s <= LOAD_AHEAD_S
