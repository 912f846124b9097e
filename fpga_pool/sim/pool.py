"""The whole pool in one thread and simulated time: the same rules, tables, policies and agents as the live one.

What is modelled is what lies around them: commands that take a while, inputs that move as planned or late,
computations that last as long as their time models say, or as long as the caller says; slots that fail or are drained,
and hosts that leave.  What an agent's host does is modelled in `sim.agents`.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.messages import AssignJob, Command, JobEvicted, JobFailed, JobReleased, Report
from fpga_pool.model.objects import DEFAULT_SHARD, Batch, Job, JobState, Slot
from fpga_pool.model.pool.admission import BatchRequest, create_batch
from fpga_pool.model.pool.batch_family import BatchFamily
from fpga_pool.model.pool.families import AnyFamily, PoolPolicies, new_families
from fpga_pool.model.pool.operations import drain_slot
from fpga_pool.model.pool.planning import known_time_models
from fpga_pool.model.pool.reconcile import apply_heartbeat, note_progress, tick
from fpga_pool.model.pool.reports import apply_reports
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.pool.task_admission import TaskRequest, create_task
from fpga_pool.model.progress import moved_bytes, planned_bytes
from fpga_pool.model.transaction import Transaction
from fpga_pool.sim.agents import Delays, SimulatedAgent
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.hosts import SimulatedHost
from fpga_pool.sim.store import MemoryStore

OWNER = "simulator"
#: How often work that waits is looked at, in seconds, and for how long if nothing changes.
LOOK_S, LONGEST_WAIT_S = 0.5, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one batch."""

    batch: Batch
    jobs: tuple[Job, ...]
    slots: tuple[Slot, ...]

    @property
    def makespan_s(self) -> float:
        """Completion of the last job after the plan's time 0."""
        ends = [job.finished_at for job in self.jobs if job.finished_at is not None]
        return max(ends) - (self.batch.dispatched_at or 0.0)


class SimulatedPool:
    """A pool of given hosts; batches are submitted to it and run to their end.

    `actual` says how long a computation really takes, of (job, estimated seconds); `sends_late` how many seconds after
    its time a client begins to send the input of a job.
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
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings or PoolSettings()
        self._delays = delays or Delays()
        self._actual = actual
        self._sends_late = sends_late
        #: When the client of an attempt begins to send, as (job, attempt).
        self._sends_at: dict[tuple[str, int], float] = {}
        self._engine = Engine()
        self._store = MemoryStore()
        self._store.time_models.update(models or {})
        self._models = known_time_models(catalogue, self._store.time_models)
        self._shard = self._store.acquire_shard(DEFAULT_SHARD, OWNER, 0.0)
        self._cycles: Sequence[Cycle[Any, Any]] = ()
        #: A look at how inputs move, and one at what waits, is on the agenda.
        self._looking = self._looking_again = False
        #: When a cycle has changed something last.
        self._changed_at_s = 0.0
        #: Numbers of reports.
        self._numbers = itertools.count(1)
        self._agents: dict[str, SimulatedAgent] = {}
        for host in hosts:
            agent = SimulatedAgent(host, self._engine, catalogue, self, self._delays)
            with self._transaction() as tx:
                apply_heartbeat(tx, agent.heartbeat(), 0.0)
            self._agents[host.name] = agent

    def run_batch(self, request: BatchRequest, policy: BatchPolicy, *, seed: int = 0, until_s: float = 1e9) -> Outcome:
        """Submit a batch, let time pass until it is complete, and return what came of it."""
        self.submit_at(self._engine.now_s, request)
        self.run(policy, seed=seed, until_s=until_s)
        return self.outcome(request.uuid)

    def submit_at(self, time_s: float, request: BatchRequest) -> None:
        """Have a batch arrive."""

        def submit(tx: Transaction) -> None:
            create_batch(tx, request, self._catalogue, self._settings, self._engine.now_s)

        self._engine.at(time_s, partial(self._disturb, submit))

    def submit_task_at(self, time_s: float, request: TaskRequest) -> None:
        """Have a task arrive."""

        def submit(tx: Transaction) -> None:
            create_task(tx, request, self._catalogue, self._settings, self._engine.now_s)

        self._engine.at(time_s, partial(self._disturb, submit))

    def fail_slot_at(self, time_s: float, name: str) -> None:
        """Have a slot fail for good; what computes there is lost."""

        def fail() -> None:
            self._agents[name.split("/")[0]].fail_slot(name)
            self._plan()

        self._engine.at(time_s, fail)

    def drain_slot_at(self, time_s: float, name: str) -> None:
        """Have the operator drain a slot."""
        self._engine.at(
            time_s, partial(self._disturb, lambda tx: drain_slot(tx, name, "simulated", self._engine.now_s))
        )

    def lose_host_at(self, time_s: float, name: str) -> None:
        """Have a host leave without a word; it is missed after the time the settings say."""
        self._engine.at(time_s, self._agents[name].vanish)
        missed_s = self._settings.host_timeout_s + 1.0

        def miss(tx: Transaction) -> None:
            tick(tx, self._settings, self._engine.now_s, {name: missed_s})

        self._engine.at(time_s + missed_s, partial(self._disturb, miss))

    def run(self, policy: BatchPolicy, *, seed: int = 0, until_s: float = 1e9) -> None:
        """Let time pass until nothing is left to happen, or until `until_s`; all batches are planned by one policy."""
        batches = BatchFamily(self._catalogue, self._settings, lambda _: policy, policy.name, lambda _: True)
        self._run([batches], seed, until_s)

    def run_families(self, policies: PoolPolicies, *, seed: int = 0, until_s: float = 1e9) -> None:
        """Let time pass as `run` does; every family of work has its policy."""
        self._run(new_families(self._catalogue, self._settings, policies), seed, until_s)

    def outcome(self, batch_uuid: str) -> Outcome:
        """Return what came of a batch."""
        with self._transaction() as tx:
            return Outcome(batch=tx.batch(batch_uuid), jobs=tuple(tx.batch_jobs(batch_uuid)), slots=tuple(tx.slots()))

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self._store.transaction(self._shard.name, self._shard.owner, self._shard.epoch)

    # The scheduler ----------------------------------------------------------------------------------------------

    def _run(self, families: Sequence[AnyFamily], seed: int, until_s: float) -> None:
        self._cycles = [
            Cycle(
                family,
                reading=self._transaction,
                transactions=self._transaction,
                dispatch=self._deliver,
                clock=lambda: self._engine.now_s,
                timer=lambda: self._engine.now_s,
                rng=np.random.default_rng(seed),
            )
            for family in families
        ]
        self._replans = any(isinstance(family, BatchFamily) and family.replans for family in families)
        self._engine.run(until_s)

    def _disturb(self, change: Callable[[Transaction], object]) -> None:
        """Change something from outside, and plan."""
        with self._transaction() as tx:
            change(tx)
        self._plan()

    def _plan(self) -> None:
        """Plan as the scheduler does, until nothing is left to be decided; look again later if work goes on."""
        something_waits = self._run_cycles(self._cycles)
        self._deliver()
        with self._transaction() as tx:
            waiting = any(job.state is not JobState.RUNNING for job in tx.active_jobs())
        if waiting and self._replans and not self._looking:
            self._looking = True
            self._engine.after(self._settings.replan_late_s, self._look)
        goes_on = self._engine.pending > self._looking
        patient = something_waits and self._engine.now_s - self._changed_at_s < LONGEST_WAIT_S
        if len(self._cycles) > 1 and (goes_on or patient) and not self._looking_again:
            self._looking_again = True
            self._engine.after(LOOK_S, self._look_again)

    def _run_cycles(self, cycles: Iterable[Cycle[Any, Any]]) -> bool:
        """Run cycles until nothing is left to be decided now; return whether there was anything to decide on."""
        asked = False
        for cycle in cycles:
            again = True
            while again:
                result = cycle.run()
                again = result.again
                asked |= result.policy is not None
                if result.failures:
                    raise result.failures[0].error
                if result.outcome.changed:
                    self._changed_at_s = self._engine.now_s
        return asked

    def _look(self) -> None:
        """See how far inputs have moved, and plan."""
        self._looking = False
        observed = [job for agent in self._agents.values() for job in agent.observed_jobs()]
        with self._transaction() as tx:
            note_progress(tx, observed, self._engine.now_s)
        self._plan()

    def _look_again(self) -> None:
        """Let decisions that depend on time be made, as long as something goes on or is waited for."""
        self._looking_again = False
        self._plan()

    def _place_freed(self) -> None:
        """Let jobs and tasks that wait for a place have what has become free."""
        self._run_cycles([cycle for cycle in self._cycles if cycle.family.waits])

    def _deliver(self) -> None:
        commands = self._store.undelivered(DEFAULT_SHARD, limit=len(self._store.outbox))
        self._store.delivered(DEFAULT_SHARD, OWNER, self._shard.epoch, {command.id for command in commands})
        if commands:
            self._engine.after(self._delays.command_s, partial(self._execute, commands))

    # The surroundings of the agents -----------------------------------------------------------------------------

    def _execute(self, commands: Sequence[Command]) -> None:
        for host in dict.fromkeys(command.host for command in commands):
            theirs = [command for command in commands if command.host == host]
            outcomes = self._agents[host].execute(self._shard.name, self._shard.epoch, theirs)
            refused = [outcome for outcome in outcomes if outcome.outcome != "accepted"]
            assert not refused, refused  # noqa: S101  # commands come in order here, and once

    def report(self, host: str, reports: Sequence[Report]) -> None:
        """See Surroundings."""
        numbered = list(zip(itertools.islice(self._numbers, len(reports)), reports, strict=True))
        with self._transaction() as tx:
            void = apply_reports(tx, host, "simulated", numbered, self._engine.now_s)
        if any(cycle.family.waits for cycle in self._cycles):
            self._engine.after(0.0, self._place_freed)
        # Nothing that goes on is void; what ends may have been given up before.
        ends = any(isinstance(report, JobReleased | JobFailed | JobEvicted) for report in reports)
        assert ends or not void, void  # noqa: S101

    def arrives_at(self, assignment: AssignJob) -> float:
        """See Surroundings."""
        job = self._job(assignment)
        return (job.dispatched_at or 0.0) + (job.transfer[-1].end_s if job.transfer else 0.0) + self._behind_s(job)

    def received_bytes(self, assignment: AssignJob) -> int:
        """See Surroundings."""
        job = self._job(assignment)
        since_s = self._engine.now_s - (job.dispatched_at or 0.0)
        return int(moved_bytes(job.transfer, job.input_bytes, since_s - self._behind_s(job)))

    def seconds(self, assignment: AssignJob, board: str) -> float:
        """See Surroundings."""
        estimated_s = self._models[assignment.function, board].seconds(assignment.input_bytes)
        return self._actual(assignment.job, estimated_s)

    def _job(self, assignment: AssignJob) -> Job:
        with self._transaction() as tx:
            return tx.job(assignment.job)

    def _behind_s(self, job: Job) -> float:
        """Return by how much an input is later than its plan; one for what is left of it is followed as it is."""
        if not job.transfer or planned_bytes(job.transfer) < 0.999 * job.input_bytes:
            return 0.0
        begins_at = (job.dispatched_at or 0.0) + job.transfer[0].begin_s
        sends_at = self._sends_at.setdefault((job.uuid, job.attempt), begins_at + self._sends_late(job.uuid))
        return max(sends_at - begins_at, 0.0)
