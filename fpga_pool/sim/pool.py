"""The whole pool in one thread and simulated time, with the rules, tables, policies, cycle and agents of a live pool.

Only the environment is modelled: delays of commands and reports; inputs that move as planned or late; computations
whose durations come from their time models or from the caller; slots that fail or are drained; hosts that leave and
schedulers that die.  `sim.agents` models the host of an agent, `sim.scheduler` the scheduler.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.agent.objects import AgentParameters
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages.agents import Heartbeat, ObservedJob, Report
from fpga_pool.model.messages.work import BatchRequest
from fpga_pool.model.objects.pool import DEFAULT_SHARD, Batch, Job, Slot
from fpga_pool.model.rules.batch.admission import create_batch
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.shared.families import PoolPolicies, new_families
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.sim.agents import SimulatedAgent
from fpga_pool.sim.engine import Delays, Engine
from fpga_pool.sim.gangs.host import GuestTimes
from fpga_pool.sim.hosts import Course, GangHosts, SimulatedHost
from fpga_pool.sim.scheduler import OWNER, FailureCount, SimulatedScheduler
from fpga_pool.sim.store import MemoryStore

ResultT = TypeVar("ResultT")

#: After this many seconds without any event, waiting work is considered stuck.
STALLED_S = 3600.0
#: Actions that may always be on the agenda: three loops, and a check of the progress of inputs.
_LOOPS = 4
#: Duration of a planning cycle per slot of the pool; changes within this time are decided on together.
CYCLE_S_PER_SLOT = 5e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Periods of the loops of a pool, in seconds; the defaults are those of a live pool."""

    #: Of the loop over pending work, waiting commands and silent hosts.
    scheduler_s: float = 1.0
    online_s: float = 0.5
    heartbeat_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one batch."""

    batch: Batch
    jobs: tuple[Job, ...]
    slots: tuple[Slot, ...]

    @property
    def makespan_s(self) -> float:
        """Seconds from the plan's time 0 to the completion of the last job."""
        ends = [job.finished_at for job in self.jobs if job.finished_at is not None]
        return max(ends) - (self.batch.dispatched_at or 0.0)


class SimulatedPool:
    """A pool of given hosts; work is submitted to it and runs to its end.

    `actual(job, estimated_s)` returns the actual duration of a computation in seconds; `sends_late(job)` by how many
    seconds a client begins to send an input later than planned. `patience` are the parameters of the agents;
    `migration_s` is the duration of a migration of a gang, by default the expected one.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        hosts: Iterable[SimulatedHost],
        settings: PoolSettings | None = None,
        delays: Delays | None = None,
        models: dict[tuple[str, str], TimeModel] | None = None,
        actual: Callable[[str, float], float] = lambda _, seconds: seconds,
        sends_late: Callable[[str], float] = lambda _: 0.0,
        patience: AgentParameters | None = None,
        migration_s: float | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.settings = settings or PoolSettings()
        self.engine = Engine()
        self.store = MemoryStore()
        self._delays = delays or Delays()
        self.store.time_models.update(models or {})
        self._scheduler = SimulatedScheduler(self.engine, self.store, self.settings, self._deliver, self._observed_jobs)
        #: Whether `run_families` is over.
        self.is_over = False
        #: Number of external events that are still to happen.
        self._to_come = 0
        #: `store.changes` at the last check for stuck work, and the time of the check that found it changed.
        self._changes, self._changed_s = 0, 0.0
        #: By host: additional delay of messages to and from its agent.
        self._slow_s: defaultdict[str, float] = defaultdict(float)
        #: Ids of commands in transit.
        self._in_flight: set[str] = set()
        #: By host: arrival time of the last commands in transit; commands do not overtake each other.
        self._due_s: defaultdict[str, float] = defaultdict(float)
        #: By host: messages of its agent that are not yet applied, with arrival times.
        self._unheard: defaultdict[str, list[tuple[float, tuple[int, Report] | Heartbeat]]] = defaultdict(list)
        #: By host: arrival time of the last message of its agent; messages do not overtake each other.
        self._arrives_s: defaultdict[str, float] = defaultdict(float)
        self._numbers = itertools.count(1)
        known = {host.name: host for host in hosts}
        course = Course(
            *(self.engine, self.store, catalogue, known, self._report, actual, sends_late),
            is_present=lambda name: self.agents[name].present,
        )
        self.agents = {
            name: SimulatedAgent(host, self.engine, catalogue, course, self._delays, patience)
            for name, host in known.items()
        }
        self._gangs = GangHosts(
            {agent.host.name: agent.host.gang_processors for agent in self.agents.values()},
            self.engine,
            GuestTimes(resume_s=self.settings.gang_migration_s if migration_s is None else migration_s),
            self._report,
        )
        for name in self.agents:
            self._beat(name)

    # External events --------------------------------------------------------------------------------------------

    def run_batch(self, request: BatchRequest, policy: BatchPolicy, *, seed: int = 0, until_s: float = 1e9) -> Outcome:
        """Submit a batch, run the simulation until it is complete, and return its outcome."""
        self.submit_at(self.engine.now_s, request)
        self.run(policy, seed=seed, until_s=until_s)
        return self.outcome(request.uuid)

    def submit_at(self, time_s: float, request: BatchRequest) -> None:
        """Submit a batch at `time_s`."""
        self.change_at(time_s, lambda tx: create_batch(tx, request, self.catalogue, self.settings, self.engine.now_s))

    def fail_slot(self, name: str) -> None:
        """Make a slot fail now, until it is repaired; its running job is lost."""
        self.agents[name.split("/")[0]].fail_slot(name)
        self._scheduler.plan()

    def repair_slot(self, name: str) -> None:
        """Make a failed slot work again from now on."""
        self.agents[name.split("/")[0]].repair_slot(name)

    def vanish(self, host: str) -> None:
        """Power off a host now; its running jobs and guests are lost."""
        self.agents[host].vanish()
        self._gangs.vanish(host)

    def come_back(self, host: str) -> None:
        """Restart a vanished host, with empty slots and the state in its journal."""
        self.agents[host].come_back()
        self._gangs.come_back(host)
        self._unheard[host] = [(at_s, said) for at_s, said in self._unheard[host] if not isinstance(said, Heartbeat)]

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Schedule an external event; `run_families` does not end before it has happened."""
        self._to_come += 1

        def happen() -> None:
            self._to_come -= 1
            action()

        self.engine.at(time_s, happen)

    def change_at(self, time_s: float, work: Callable[[Transaction], object]) -> None:
        """Apply a change from outside at `time_s`."""
        self.at(time_s, lambda: self.change(work))

    def change(self, work: Callable[[Transaction], ResultT]) -> ResultT:
        """Apply a change from outside now, and plan; return the result of `work`."""
        with self._scheduler.transaction() as tx:
            result = work(tx)
        self._scheduler.plan()
        return result

    def slow_host(self, name: str, delay_s: float) -> None:
        """Delay all messages to and from the agent of a host by `delay_s` more from now on; 0 ends the delay."""
        self._slow_s[name] = delay_s

    def take_over(self, after_s: float, policies: PoolPolicies, seed: int) -> None:
        """Kill the scheduler now; another one acquires the shard after `after_s` seconds."""
        self._scheduler.die()
        self.engine.after(after_s, partial(self._begin_again, policies, seed))

    # Time -------------------------------------------------------------------------------------------------------

    def run(self, policy: BatchPolicy, *, seed: int = 0, until_s: float = 1e9) -> None:
        """Run until no actions are left, or until `until_s`; one policy plans all batches.

        An error of the policy is raised.
        """
        batches = BatchFamily(self.catalogue, self.settings, lambda _: policy, policy.name, lambda _: True)
        self._scheduler.begin([batches], seed)
        self.engine.run(until_s)

    def run_families(
        self, policies: PoolPolicies, *, seed: int = 0, until_s: float = 1e9, intervals: Intervals | None = None
    ) -> None:
        """Run all families until the run is over, or until `until_s`, with the periodic loops of a live pool.

        The run is over when all external events (`at`) have happened, and all work has ended or is stuck.
        Work whose policy fails is deferred, as in a live pool; see `failures`.
        """
        self._scheduler.raises = False
        self._scheduler.begin(new_families(self.catalogue, self.settings, policies), seed)
        every = intervals or Intervals()
        self._scheduler.cycle_delay_s = CYCLE_S_PER_SLOT * sum(len(agent.host.slots) for agent in self.agents.values())

        def loop(interval_s: float, step: Callable[[], None]) -> None:
            def turn() -> None:
                self.is_over = self.is_over or (not self._to_come and self._is_at_rest())
                if not self.is_over:
                    step()
                    self.engine.after(interval_s, turn)

            self.engine.after(interval_s, turn)

        loop(every.heartbeat_s, self._beat_all)
        loop(every.online_s, self._scheduler.plan_online)
        loop(every.scheduler_s, self._scheduler.tick)
        self.engine.run(until_s)

    def _is_at_rest(self) -> bool:
        """Return whether all work has ended, or the remaining work is stuck."""
        with self.store.reading() as tx:
            if not tx.is_at_work():
                return True
        if self.store.changes != self._changes:
            self._changes, self._changed_s = self.store.changes, self.engine.now_s
        return self.engine.pending <= _LOOPS and self.engine.now_s - self._changed_s > STALLED_S

    def outcome(self, batch_uuid: str) -> Outcome:
        """Return the outcome of a batch."""
        with self._scheduler.transaction() as tx:
            return Outcome(batch=tx.batch(batch_uuid), jobs=tuple(tx.batch_jobs(batch_uuid)), slots=tuple(tx.slots()))

    # The scheduler ----------------------------------------------------------------------------------------------

    @property
    def headless(self) -> bool:
        """Whether the shard has no owner, so that messages to the scheduler wait."""
        return self._scheduler.is_dead

    @property
    def failures(self) -> dict[str, FailureCount]:
        """Failures of policies that did not end the run, by message."""
        return self._scheduler.failures

    def _begin_again(self, policies: PoolPolicies, seed: int) -> None:
        """Let another scheduler acquire the shard after the death of the previous one."""
        self._scheduler.acquire()
        self._in_flight.clear()
        self._due_s.clear()
        for agent in self.agents.values():
            agent.execute(DEFAULT_SHARD, self._scheduler.epoch, ())
        self._scheduler.begin(new_families(self.catalogue, self.settings, policies), seed)
        for host in list(self._unheard):
            self._hear(host)
        self._scheduler.plan()

    def _observed_jobs(self) -> list[ObservedJob]:
        return [job for agent in self.agents.values() if agent.present for job in agent.observed_jobs()]

    # Messages between the scheduler and the agents --------------------------------------------------------------

    def _deliver(self) -> None:
        if self.headless or not self.store.outbox:
            return
        by_host: dict[str, list[str]] = {}
        for command in self.store.outbox:
            if command.id not in self._in_flight:
                by_host.setdefault(command.host, []).append(command.id)
        for host, ids in by_host.items():
            self._in_flight.update(ids)
            due_s = self.engine.now_s + self._delays.command_s + self._slow_s[host]
            self._due_s[host] = due_s = max(due_s, self._due_s[host])
            self.engine.at(due_s, partial(self._execute, host, self._scheduler.epoch, frozenset(ids)))

    def _execute(self, host: str, epoch: int, ids: frozenset[str]) -> None:
        """Execute commands on their agent; commands for an absent host stay in the outbox and are sent again."""
        agent, commands = self.agents[host], [command for command in self.store.outbox if command.id in ids]
        self._in_flight -= ids
        if not agent.present or not commands:
            return
        of_gangs = [command for command in commands if self._gangs.takes(command)]
        try:
            agent.execute(DEFAULT_SHARD, epoch, [command for command in commands if not self._gangs.takes(command)])
        except StaleEpoch:
            return
        if of_gangs:
            self._gangs.execute(host, of_gangs)
        self.store.delivered(DEFAULT_SHARD, OWNER, epoch, ids)

    def _report(self, host: str, reports: Sequence[Report]) -> None:
        """Deliver an agent's reports to the scheduler, each once and in order."""
        at_s = self._next_arrival_s(host)
        numbered = zip(itertools.islice(self._numbers, len(reports)), reports, strict=True)
        self._unheard[host] += ((at_s, said) for said in numbered)
        if at_s > self.engine.now_s:
            self.engine.at(at_s, partial(self._hear, host))
        else:
            self._hear(host)

    def _next_arrival_s(self, host: str) -> float:
        """Return the arrival time of a message that an agent sends now."""
        self._arrives_s[host] = at_s = max(self.engine.now_s + self._slow_s[host], self._arrives_s[host])
        return at_s

    def _hear(self, host: str) -> None:
        """Apply the messages of an agent that have arrived, in order."""
        if self.headless or not self.agents[host].present:
            return
        arrived = [said for at_s, said in self._unheard[host] if at_s <= self.engine.now_s]
        del self._unheard[host][: len(arrived)]
        reports: list[tuple[int, Report]] = []
        for said in arrived:
            if isinstance(said, Heartbeat):
                self._scheduler.apply_reports(host, reports)
                reports = []
                self._scheduler.apply_heartbeat(said)
            else:
                reports.append(said)
        self._scheduler.apply_reports(host, reports)

    def _beat_all(self) -> None:
        for name, agent in self.agents.items():
            if not agent.present:
                continue
            at_s = self._next_arrival_s(name)
            if at_s > self.engine.now_s:
                self._unheard[name].append((at_s, self._heartbeat(name)))
                self.engine.at(at_s, partial(self._hear, name))
            else:
                self.engine.after(0.0, partial(self._beat, name))

    def _beat(self, host: str) -> None:
        """Apply the messages of an agent that have arrived, then a heartbeat that it sends now."""
        if not self.headless and self.agents[host].present:
            self._hear(host)
            self._scheduler.apply_heartbeat(self._heartbeat(host))

    def _heartbeat(self, host: str) -> Heartbeat:
        processors, processes = self._gangs.observed(host)
        return changed(self.agents[host].heartbeat(), processors=processors, processes=processes)
