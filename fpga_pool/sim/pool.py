"""The whole pool in one thread and simulated time: the same rules, tables, policies and dispatch as the live one.

What is modelled is what lies around them: commands and reports that take a while, inputs that move as planned, loads
that take turns at a card's configuration port, computations that last as long as their time models say, or as long as
the caller says; slots that fail or are drained, and hosts that leave.  Slow clients and an oversubscribed DMA are not.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fpga_pool.core.dispatch import Load, QueueEntry, Run, next_action
from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.messages import (
    AssignJob,
    Command,
    InputStaged,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    ObservedJob,
    ReleaseJob,
    Report,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.objects import DEFAULT_SHARD, Batch, Job, JobState, Slot, SlotState
from fpga_pool.model.pool.admission import BatchRequest, create_batch
from fpga_pool.model.pool.batch_family import BatchFamily
from fpga_pool.model.pool.families import AnyFamily, PoolPolicies, new_families
from fpga_pool.model.pool.operations import drain_slot
from fpga_pool.model.pool.planning import known_time_models
from fpga_pool.model.pool.reconcile import apply_heartbeat, note_progress, tick
from fpga_pool.model.pool.reports import apply_reports
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.progress import moved_bytes, planned_bytes, told_bytes
from fpga_pool.model.transaction import Transaction
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.hosts import SimulatedHost, SimulatedSlot
from fpga_pool.sim.store import MemoryStore

OWNER = "simulator"
#: How often work that waits is looked at, in seconds, and for how long if nothing changes.
LOOK_S, LONGEST_WAIT_S = 0.5, 3600.0
#: Times closer than this are one and the same.
_INSTANT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """What takes time around the decisions, in seconds; by default as in the embedded pool on idle processors."""

    #: From a commit to its execution by the agent.
    command_s: float = 0.03
    #: From an input's last byte to the job's place in the slot's queue: digest, disk, journal.
    staging_s: float = 0.02
    #: Between two computations on a slot: the result's digest, journal, reports.
    turnaround_s: float = 0.01


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
        self._slots: dict[str, SimulatedSlot] = {}
        self._gone: set[str] = set()
        #: Complete inputs, as (host, job).
        self._inputs: set[tuple[str, str]] = set()
        self._port_free_s: dict[tuple[str, str], float] = {}
        #: Numbers of reports.
        self._numbers = itertools.count(1)
        for host in hosts:
            with self._transaction() as tx:
                apply_heartbeat(tx, host.heartbeat(0.0), 0.0)
            self._slots |= {slot.slot: SimulatedSlot(slot, slot.function) for slot in host.slots}

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

    def fail_slot_at(self, time_s: float, name: str) -> None:
        """Have a slot fail for good; what computes there is lost."""
        self._engine.at(time_s, partial(self._fail, self._slots[name]))

    def drain_slot_at(self, time_s: float, name: str) -> None:
        """Have the operator drain a slot."""
        self._engine.at(
            time_s, partial(self._disturb, lambda tx: drain_slot(tx, name, "simulated", self._engine.now_s))
        )

    def lose_host_at(self, time_s: float, name: str) -> None:
        """Have a host leave without a word; it is missed after the time the settings say."""
        self._engine.at(time_s, partial(self._leave, name))
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
        self._run_cycles(self._cycles)
        self._deliver()
        with self._transaction() as tx:
            waiting = any(job.state is not JobState.RUNNING for job in tx.active_jobs())
        if waiting and self._replans and not self._looking:
            self._looking = True
            self._engine.after(self._settings.replan_late_s, self._look)
        if len(self._cycles) > 1 and not self._looking_again:
            self._looking_again = True
            self._engine.after(LOOK_S, self._look_again)

    def _run_cycles(self, cycles: Iterable[Cycle[Any, Any]]) -> None:
        for cycle in cycles:
            again = True
            while again:
                result = cycle.run()
                again = result.again
                if result.failures:
                    raise result.failures[0].error
                if result.outcome.changed:
                    self._changed_at_s = self._engine.now_s

    def _look(self) -> None:
        """See how far inputs have moved, and plan."""
        self._looking = False
        with self._transaction() as tx:
            waiting = [job for job in tx.active_jobs() if job.state is JobState.WAITING_INPUT and job.transfer]
            note_progress(tx, map(self._observed, waiting), self._engine.now_s)
        self._plan()

    def _look_again(self) -> None:
        """Let decisions that depend on time be made, as long as something goes on or is waited for."""
        self._looking_again = False
        goes_on = self._engine.pending > self._looking
        if goes_on or self._engine.now_s - self._changed_at_s < LONGEST_WAIT_S:
            self._plan()

    def _place_freed(self) -> None:
        """Let jobs and tasks that wait for a place have what has become free."""
        self._run_cycles([cycle for cycle in self._cycles if cycle.family.waits])

    def _observed(self, job: Job) -> ObservedJob:
        """Return what an agent would see of an input, and tell if it is not as planned."""
        since_s = self._engine.now_s - (job.dispatched_at or 0.0)
        moved = int(moved_bytes(job.transfer, job.input_bytes, since_s - self._behind_s(job)))
        told = told_bytes(job.transfer, job.input_bytes, moved, since_s)
        return ObservedJob(job=job.uuid, attempt=job.attempt, slot=job.slot, moved_bytes=told)

    def _behind_s(self, job: Job) -> float:
        """Return by how much an input is later than its plan; one for what is left of it is followed as it is."""
        if not job.transfer or planned_bytes(job.transfer) < 0.999 * job.input_bytes:
            return 0.0
        begins_at = (job.dispatched_at or 0.0) + job.transfer[0].begin_s
        sends_at = self._sends_at.setdefault((job.uuid, job.attempt), begins_at + self._sends_late(job.uuid))
        return max(sends_at - begins_at, 0.0)

    def _deliver(self) -> None:
        commands = self._store.undelivered(DEFAULT_SHARD, limit=len(self._store.outbox))
        self._store.delivered(DEFAULT_SHARD, OWNER, self._shard.epoch, {command.id for command in commands})
        if commands:
            self._engine.after(self._delays.command_s, partial(self._execute, commands))

    def _report(self, slot: SimulatedSlot, *reports: Report) -> None:
        numbered = list(zip(itertools.islice(self._numbers, len(reports)), reports, strict=True))
        with self._transaction() as tx:
            void = apply_reports(tx, slot.host, "simulated", numbered, self._engine.now_s)
        if any(cycle.family.waits for cycle in self._cycles):
            self._engine.after(0.0, self._place_freed)
        # Nothing that goes on is void; what ends may have been given up before.
        ends = any(isinstance(report, JobReleased | JobFailed) for report in reports)
        assert ends or not void, void  # noqa: S101

    # The agents -------------------------------------------------------------------------------------------------

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            slot, action = self._slots[command.slot], command.action
            if slot.host in self._gone:
                continue
            if isinstance(action, AssignJob):
                self._assign(slot, action)
            elif isinstance(action, ReleaseJob):
                self._release(slot, action.job)
        for name in dict.fromkeys(command.slot for command in commands):
            self._next(self._slots[name])

    def _assign(self, slot: SimulatedSlot, action: AssignJob) -> None:
        for other in self._slots.values():
            if other.host == slot.host:
                self._forget(other, action.job)
        slot.queue[action.job] = action
        if (slot.host, action.job) in self._inputs:  # it was moved here from another slot of the host
            self._stage(slot, action)
        else:
            self._await_input(slot, action)

    def _await_input(self, slot: SimulatedSlot, action: AssignJob) -> None:
        """Stage the job when its input has moved as planned; the plan may have changed meanwhile."""
        if slot.dead or slot.queue.get(action.job) is not action:
            return
        with self._transaction() as tx:
            job = tx.job(action.job)
        moved_s = (job.dispatched_at or 0.0) + (job.transfer[-1].end_s if job.transfer else 0.0)
        arrives_s = moved_s + self._behind_s(job) + self._delays.staging_s
        if arrives_s > self._engine.now_s + _INSTANT_S:
            self._engine.at(arrives_s, partial(self._await_input, slot, action))
        else:
            self._stage(slot, action)

    def _stage(self, slot: SimulatedSlot, action: AssignJob) -> None:
        slot.staged.add(action.job)
        self._inputs.add((slot.host, action.job))
        self._report(slot, InputStaged(job=action.job, attempt=action.attempt, at=self._engine.now_s))
        self._next(slot)

    def _release(self, slot: SimulatedSlot, job: str) -> None:
        self._inputs.discard((slot.host, job))
        action = self._forget(slot, job)
        if action is not None:
            self._report(slot, JobReleased(job=job, attempt=action.attempt, at=self._engine.now_s))

    def _forget(self, slot: SimulatedSlot, job: str) -> AssignJob | None:
        slot.staged.discard(job)
        return slot.queue.pop(job, None)

    def _next(self, slot: SimulatedSlot) -> None:
        """Have an idle slot do what the shared rule says."""
        if slot.busy or slot.dead:
            return
        queue = [
            QueueEntry(key=action.job, order=action.order, function=action.function, staged=action.job in slot.staged)
            for action in slot.queue.values()
        ]
        action = next_action(queue, slot.function or None)
        if isinstance(action, Load):
            self._load(slot, action.function)
        elif isinstance(action, Run):
            self._compute(slot, slot.queue.pop(action.entry.key))

    def _load(self, slot: SimulatedSlot, function: str) -> None:
        slot.busy = True
        self._report(slot, self._changed(slot, SlotState.LOADING, function))
        observed = slot.observed
        port = slot.host, observed.card
        begins_s = max(self._engine.now_s, self._port_free_s.get(port, 0.0))
        ends_s = begins_s + self._catalogue.board(observed.board).load_s(observed.kind)
        self._port_free_s[port] = ends_s
        self._engine.at(ends_s, partial(self._loaded, slot, function))

    def _loaded(self, slot: SimulatedSlot, function: str) -> None:
        if slot.dead:
            return
        slot.busy, slot.function = False, function
        self._report(slot, self._changed(slot, SlotState.READY, function))
        self._next(slot)

    def _compute(self, slot: SimulatedSlot, action: AssignJob) -> None:
        slot.busy, slot.running = True, action
        started = JobStarted(job=action.job, attempt=action.attempt, at=self._engine.now_s)
        self._report(slot, self._changed(slot, SlotState.BUSY, slot.function, action.job), started)
        estimated_s = self._models[action.function, slot.observed.board].seconds(action.input_bytes)
        seconds = self._actual(action.job, estimated_s)
        self._engine.after(seconds, partial(self._finish, slot, action, seconds))

    def _finish(self, slot: SimulatedSlot, action: AssignJob, seconds: float) -> None:
        if slot.dead:
            return
        slot.running = None
        self._inputs.discard((slot.host, action.job))
        about = self._about(action)
        self._report(
            slot,
            JobFinished(**about, compute_s=seconds, result_bytes=0, result_sha256=""),
            self._changed(slot, SlotState.READY, slot.function),
            ResultDelivered(**about),
        )
        self._engine.after(self._delays.turnaround_s, partial(self._idle, slot))

    def _idle(self, slot: SimulatedSlot) -> None:
        slot.busy = False
        self._next(slot)

    def _fail(self, slot: SimulatedSlot) -> None:
        slot.dead = True
        failed: list[Report] = []
        if slot.running is not None:
            about = self._about(slot.running)
            failed.append(JobFailed(**about, code="fpga_pool.slot_fault", message="simulated", retryable=True))
        self._report(slot, *failed, self._changed(slot, SlotState.FAULTED, ""))
        self._plan()

    def _leave(self, host: str) -> None:
        self._gone.add(host)
        for slot in self._slots.values():
            slot.dead |= slot.host == host

    def _about(self, action: AssignJob) -> dict[str, Any]:
        return {"job": action.job, "attempt": action.attempt, "at": self._engine.now_s}

    def _changed(self, slot: SimulatedSlot, state: SlotState, function: str, job: str = "") -> SlotChanged:
        return SlotChanged(slot=slot.observed.slot, at=self._engine.now_s, state=state, function=function, job=job)
