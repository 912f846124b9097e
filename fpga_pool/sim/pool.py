"""The whole pool in one thread and simulated time: the same rules, tables, policies and dispatch as the live one.

What is modelled is what lies around them: commands and reports that take a while, inputs that move as planned, loads
that take turns at a card's configuration port, computations that last as long as their time models say.  Faults,
slow clients and an oversubscribed DMA are not.
"""

import itertools
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fpga_pool.core.dispatch import Load, QueueEntry, Run, next_action
from fpga_pool.core.policy import BatchPolicy
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages import (
    AssignJob,
    Command,
    Heartbeat,
    InputStaged,
    JobFinished,
    JobReleased,
    JobStarted,
    ObservedSlot,
    Report,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.objects import DEFAULT_SHARD, Batch, Job, Slot, SlotState
from fpga_pool.model.pool.admission import BatchRequest, create_batch
from fpga_pool.model.pool.planning import batch_problem, commit_plan, known_time_models, require_answer, snapshot
from fpga_pool.model.pool.reconcile import apply_heartbeat
from fpga_pool.model.pool.reports import apply_reports
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.sim.engine import Engine
from fpga_pool.sim.store import MemoryStore

OWNER = "simulator"


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
class SimulatedHost:
    """One host as the pool would observe it at the start."""

    name: str
    egress_bps: float
    ingress_bps: float
    slots: tuple[ObservedSlot, ...]

    def heartbeat(self, at: float) -> Heartbeat:
        """Return what its agent would tell."""
        return Heartbeat(
            host=self.name,
            agent_id="simulated",
            boot=1,
            beat=1,
            at=at,
            egress_bps=self.egress_bps,
            ingress_bps=self.ingress_bps,
            data_address="",
            data_port=0,
            slots=self.slots,
            jobs=(),
        )


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


@dataclass(slots=True)
class _Slot:
    """A slot as its agent would keep it."""

    observed: ObservedSlot
    function: str
    queue: dict[str, AssignJob] = field(default_factory=dict)
    staged: set[str] = field(default_factory=set)
    busy: bool = False


class SimulatedPool:
    """A pool of given hosts; batches are submitted to it and run to their end."""

    def __init__(
        self,
        catalogue: Catalogue,
        hosts: Iterable[SimulatedHost],
        settings: PoolSettings | None = None,
        delays: Delays | None = None,
        models: dict[tuple[str, str], TimeModel] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings or PoolSettings()
        self._delays = delays or Delays()
        self._engine = Engine()
        self._store = MemoryStore()
        self._store.time_models.update(models or {})
        self._models = known_time_models(catalogue, self._store.time_models)
        self._shard = self._store.acquire_shard(DEFAULT_SHARD, OWNER, 0.0)
        self._slots: dict[str, _Slot] = {}
        self._port_free_s: dict[tuple[str, str], float] = {}
        #: Numbers of reports.
        self._numbers = itertools.count(1)
        for host in hosts:
            with self._transaction() as tx:
                apply_heartbeat(tx, host.heartbeat(0.0), 0.0)
            self._slots |= {slot.slot: _Slot(slot, slot.function) for slot in host.slots}

    def run_batch(self, request: BatchRequest, policy: BatchPolicy, *, seed: int = 0, until_s: float = 1e9) -> Outcome:
        """Submit a batch, let time pass until it is complete, and return what came of it."""
        with self._transaction() as tx:
            create_batch(tx, request, self._catalogue, self._settings, self._engine.now_s)
        self._plan(policy, np.random.default_rng(seed))
        self._engine.run(until_s)
        with self._transaction() as tx:
            return Outcome(
                batch=tx.batch(request.uuid), jobs=tuple(tx.batch_jobs(request.uuid)), slots=tuple(tx.slots())
            )

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self._store.transaction(self._shard.name, self._shard.owner, self._shard.epoch)

    # The scheduler ----------------------------------------------------------------------------------------------

    def _plan(self, policy: BatchPolicy, rng: np.random.Generator) -> None:
        now_s = self._engine.now_s
        with self._transaction() as tx:
            snap = snapshot(tx, self._catalogue, self._settings, now_s + self._settings.dispatch_lead_s)
        if snap is None:
            return
        request = batch_problem(snap)
        plan = policy.decide(request.problem, None, 0.0, rng)
        require_answer(request, plan)
        with self._transaction() as tx:
            commit_plan(tx, request, plan, self._settings, now_s)
        commands = self._store.undelivered(DEFAULT_SHARD, limit=len(self._store.outbox))
        self._store.delivered(DEFAULT_SHARD, OWNER, self._shard.epoch, {command.id for command in commands})
        self._engine.after(self._delays.command_s, partial(self._execute, commands))

    def _report(self, slot: _Slot, *reports: Report) -> None:
        host = slot.observed.slot.split("/")[0]
        numbered = list(zip(itertools.islice(self._numbers, len(reports)), reports, strict=True))
        with self._transaction() as tx:
            void = apply_reports(tx, host, "simulated", numbered, self._engine.now_s)
        assert not void, void  # noqa: S101  # nothing fails here, so nothing may be void

    # The agents -------------------------------------------------------------------------------------------------

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            slot, action = self._slots[command.slot], command.action
            if isinstance(action, AssignJob):
                slot.queue[action.job] = action
                with self._transaction() as tx:
                    job = tx.job(action.job)
                arrives_s = (job.dispatched_at or 0.0) + (job.transfer[-1].end_s if job.transfer else 0.0)
                self._engine.at(arrives_s + self._delays.staging_s, partial(self._stage, slot, action))
            elif slot.queue.pop(action.job, None) is not None:
                self._report(slot, JobReleased(job=action.job, attempt=1, at=self._engine.now_s))
        for name in dict.fromkeys(command.slot for command in commands):
            self._next(self._slots[name])

    def _stage(self, slot: _Slot, action: AssignJob) -> None:
        slot.staged.add(action.job)
        self._report(slot, InputStaged(job=action.job, attempt=action.attempt, at=self._engine.now_s))
        self._next(slot)

    def _next(self, slot: _Slot) -> None:
        """Have an idle slot do what the shared rule says."""
        if slot.busy:
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

    def _load(self, slot: _Slot, function: str) -> None:
        slot.busy = True
        self._report(slot, self._changed(slot, SlotState.LOADING, function))
        observed = slot.observed
        port = observed.slot.split("/")[0], observed.card
        begins_s = max(self._engine.now_s, self._port_free_s.get(port, 0.0))
        ends_s = begins_s + self._catalogue.board(observed.board).load_s(observed.kind)
        self._port_free_s[port] = ends_s
        self._engine.at(ends_s, partial(self._loaded, slot, function))

    def _loaded(self, slot: _Slot, function: str) -> None:
        slot.busy, slot.function = False, function
        self._report(slot, self._changed(slot, SlotState.READY, function))
        self._next(slot)

    def _compute(self, slot: _Slot, action: AssignJob) -> None:
        slot.busy = True
        started = JobStarted(job=action.job, attempt=action.attempt, at=self._engine.now_s)
        self._report(slot, self._changed(slot, SlotState.BUSY, slot.function, action.job), started)
        seconds = self._models[action.function, slot.observed.board].seconds(action.input_bytes)
        self._engine.after(seconds, partial(self._finish, slot, action, seconds))

    def _finish(self, slot: _Slot, action: AssignJob, seconds: float) -> None:
        about: dict[str, Any] = {"job": action.job, "attempt": action.attempt, "at": self._engine.now_s}
        self._report(
            slot,
            JobFinished(**about, compute_s=seconds, result_bytes=0, result_sha256=""),
            self._changed(slot, SlotState.READY, slot.function),
            ResultDelivered(**about),
        )
        self._engine.after(self._delays.turnaround_s, partial(self._idle, slot))

    def _idle(self, slot: _Slot) -> None:
        slot.busy = False
        self._next(slot)

    def _changed(self, slot: _Slot, state: SlotState, function: str, job: str = "") -> SlotChanged:
        return SlotChanged(slot=slot.observed.slot, at=self._engine.now_s, state=state, function=function, job=job)


def fresh_hosts(
    catalogue: Catalogue, board: str, *, hosts: int, cards: int, egress_bps: float, ingress_bps: float
) -> list[SimulatedHost]:
    """Return hosts like those of a new embedded pool: node-1, node-2 and so on, every slot empty."""
    return [
        SimulatedHost(
            name=f"node-{number}",
            egress_bps=egress_bps,
            ingress_bps=ingress_bps,
            slots=tuple(
                ObservedSlot(
                    slot=f"node-{number}/sim{card}/slot{region}",
                    card=f"sim{card}",
                    region=f"slot{region}",
                    board=board,
                    kind=kind,
                    state=SlotState.EMPTY,
                )
                for card in range(cards)
                for region, kind in enumerate(catalogue.board(board).slots)
            ),
        )
        for number in range(1, hosts + 1)
    ]
