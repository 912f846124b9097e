"""Delivery of committed commands to agents: at least once, in order for each host, hosts independent of each other."""

import logging
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, StaleEpoch
from fpga_pool.model.messages import Command, LoadFunction, Outcome
from fpga_pool.model.objects import Shard
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.transport import MessagingError
from fpga_pool.services.clock import Clock
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: A host that does not answer is tried again after a pause that doubles from the first to the second of these.
RETRY_S = (0.5, 10.0)
#: Commands sent in one call.
BATCH = 200
#: A load ahead of jobs that has waited for longer, in seconds, is not asked for any more: its moment is over.
LOAD_AHEAD_S = 10.0
#: An agent that does not know of loads ahead is asked for none for so many seconds.
NO_LOADS_S = 600.0


class Outbox:
    """Sends each host what waits for it; a host that is away delays nobody else."""

    def __init__(self, store: Store, shard: Shard, agents: AgentAPI, clock: Clock) -> None:
        self._store = store
        self._shard = shard
        self._agents = agents
        self._clock = clock
        self._workers = ThreadPoolExecutor(8, thread_name_prefix="outbox")
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._pause_s: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        #: By host, when each of the loads ahead that wait for it was first seen here.
        self._seen: dict[str, dict[str, float]] = {}
        #: By host whose agent does not know of loads ahead, until when it is asked for none.
        self._no_loads: dict[str, float] = {}

    def announce(self, hosts: Iterable[str]) -> None:
        """Tell agents in whose hands the shard is now: what its former owner still says they refuse."""
        for host in hosts:
            self._workers.submit(self._announce, host)

    def _announce(self, host: str) -> None:
        try:
            self._agents.execute(host, self._shard.name, self._shard.epoch, [])
        except (MessagingError, FpgaPoolError) as error:
            LOG.debug("agent %s was not told of the owner of shard %s: %s", host, self._shard.name, error)

    def dispatch(self, wake: Callable[[], None]) -> bool:
        """Start delivery to every host that has commands waiting and is not being served; `wake` when one is done."""
        # Whoever is being served while the outbox is read is left to the next time: what was read may be delivered.
        with self._lock:
            served = set(self._busy)
        by_host: dict[str, list[Command]] = {}
        for command in self._store.undelivered(self._shard.name, limit=10_000, but_for=served):
            by_host.setdefault(command.host, []).append(command)
        for host, commands in by_host.items():
            self._note_loads(host, commands)
            with self._lock:
                if host in self._busy or self._clock() < self._not_before.get(host, 0.0):
                    continue
                self._busy.add(host)
            self._workers.submit(self._deliver, host, commands[:BATCH], wake)
        return False

    def stop(self) -> None:
        """End; what was not delivered stays in the store."""
        self._workers.shutdown(wait=True, cancel_futures=True)

    def _deliver(self, host: str, commands: list[Command], wake: Callable[[], None]) -> None:
        try:
            shard = self._shard
            for outcome in self._execute(host, commands):
                if outcome.outcome == "refused":
                    LOG.warning("agent %s refused command %s: %s", host, outcome.command, outcome.reason)
            self._store.delivered(shard.name, shard.owner, shard.epoch, [command.id for command in commands])
            self._pause_s.pop(host, None)
        except StaleEpoch as error:
            LOG.warning("agent %s: %s", host, error)
            self._not_before[host] = self._clock() + RETRY_S[1]
        except (MessagingError, FpgaPoolError) as error:
            pause_s = self._pause_s.get(host, RETRY_S[0])
            self._pause_s[host] = min(2 * pause_s, RETRY_S[1])
            self._not_before[host] = self._clock() + pause_s
            LOG.warning("commands for agent %s wait (%s); next try in %.1f s", host, error, pause_s)
        except Exception:
            LOG.exception("delivery to agent %s failed", host)
            self._not_before[host] = self._clock() + RETRY_S[1]
        finally:
            with self._lock:
                self._busy.discard(host)
            wake()

    # Loads ahead of jobs: for this moment, or never -------------------------------------------------------------

    def _note_loads(self, host: str, commands: Iterable[Command]) -> None:
        """Note since when loads ahead wait for a host that is not being served."""
        seen, now_s = self._seen.pop(host, {}), self._clock()
        loads = {command.id: seen.get(command.id, now_s) for command in commands if _loads_ahead(command)}
        if loads:
            self._seen[host] = loads

    def _execute(self, host: str, commands: Iterable[Command]) -> list[Outcome]:
        """Have an agent execute commands, of the loads ahead those whose moment is now and that it knows of."""
        shard, now_s = self._shard, self._clock()
        knows = now_s >= self._no_loads.get(host, -math.inf)
        sent = [command if knows and self._in_time(command, now_s) else _without_load(command) for command in commands]
        try:
            outcomes = self._agents.execute(host, shard.name, shard.epoch, sent)
        except InvalidInput as error:
            if not any(map(_loads_ahead, sent)):
                raise
            outcomes = self._agents.execute(host, shard.name, shard.epoch, [_without_load(item) for item in sent])
            if host not in self._no_loads:
                LOG.warning(
                    "agent %s does not know LoadFunction (%s): its slots load nothing ahead until it is upgraded",
                    host,
                    error,
                )
            self._no_loads[host] = now_s + NO_LOADS_S
        else:
            if any(map(_loads_ahead, sent)):
                self._no_loads.pop(host, None)
        return outcomes

    def _in_time(self, command: Command, now_s: float) -> bool:
        """Say whether a command, if it is a load ahead, was decided just now, and by this owner of the shard."""
        seen_at = self._seen.get(command.host, {}).get(command.id, now_s)
        return command.epoch == self._shard.epoch and now_s - seen_at <= LOAD_AHEAD_S


def _loads_ahead(command: Command) -> bool:
    return isinstance(command.action, LoadFunction)


def _without_load(command: Command) -> Command:
    return command.without_effect() if _loads_ahead(command) else command
