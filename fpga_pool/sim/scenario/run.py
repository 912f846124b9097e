"""The run of a scenario in simulated time: arrivals of work, failures and other events, and instances."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fpga_pool.model.agent.objects import AgentParameters
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.lifecycle.slot import SLOT, DrainRequested, ResumeRequested
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.messages.work import BatchRequest, GangRequest, PipelineRequest, TaskRequest
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.pool import CPU, ENDED_BATCHES, Batch, Host
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.batch.admission import cancel_batch, cancel_jobs, change_batch, create_batch, hold_jobs
from fpga_pool.model.rules.gang.admission import cancel_gang, create_gang
from fpga_pool.model.rules.instance.instances import Claim, claim_slots, held_by, release_slots
from fpga_pool.model.rules.pipeline.admission import create_pipeline
from fpga_pool.model.rules.shared.changes import drain_slot, resume_slot
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.admission import cancel_task, create_task
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed
from fpga_pool.sim.engine import Delays
from fpga_pool.sim.pool import Intervals, SimulatedPool
from fpga_pool.sim.scenario.arrivals import (
    Arrival,
    InstanceRequest,
    Request,
    arrivals,
    explanations,
    hosts_by_cost,
    pool_columns,
    simulated_hosts,
)
from fpga_pool.sim.scenario.recording import Happening, Recorder
from fpga_pool.sim.scenario.tables import EventTable, Scenario
from fpga_pool.sim.scheduler import FailureCount

#: Seconds after which actions that failed because the shard had no owner are retried.
RETRY_S = 1.0
#: Assumed lifetime of an instance if the scenario does not specify one.
STAY_S = 3600.0
#: Default time without an owner of the shard in a takeover; as [scheduler] shard_timeout_s.
TAKEOVER_S = 5.0
#: Longest pause of a slot that fails repeatedly, as of a live agent.
LONGEST_FAULT_PAUSE_S = 60.0


@dataclass(slots=True)
class Instance:
    """A virtual machine of the scenario."""

    request: InstanceRequest
    arrived_s: float
    #: State as in Nova: BUILD, ACTIVE, DELETED or ERROR.
    state: str = "BUILD"
    host: str = ""
    ended_s: float | None = None
    why: str = ""


class ScenarioRun:
    """One run of a scenario; `run` is called once."""

    def __init__(
        self, scenario: Scenario, catalogue: Catalogue, settings: PoolSettings, policies: PoolPolicies, seed: int
    ) -> None:
        self.scenario, self.catalogue, self.settings, self.policies = scenario, catalogue, settings, policies
        self.seed = seed
        self.instances: list[Instance] = []
        #: Human-readable messages of the requests that the pool has refused during the run.
        self.refused: list[str] = []
        self._arrivals = arrivals(scenario, seed)
        self._takes = {job: factor for arrival in self._arrivals for job, factor in arrival.takes.items()}
        self._late_s = {job: late_s for arrival in self._arrivals for job, late_s in arrival.late_s.items()}
        self._arrived: list[Arrival] = []
        #: Number of current events, by kind of event and object.
        self._under_way: Counter[tuple[str, str]] = Counter()
        self._pool = SimulatedPool(
            catalogue,
            simulated_hosts(scenario, catalogue),
            settings,
            Delays(
                command_s=scenario.delays.command_s,
                staging_s=scenario.delays.staging_s,
                turnaround_s=scenario.delays.turnaround_s,
            ),
            migration_s=scenario.delays.migration_s,
            actual=lambda job, estimated_s: self._takes.get(job, 1.0) * estimated_s,
            sends_late=lambda job: self._late_s.get(job, 0.0),
            patience=AgentParameters(
                hang_factor=scenario.agent.hang_factor,
                hang_grace_s=scenario.agent.hang_grace_s,
                fault_pause_s=(scenario.agent.fault_pause_s, max(scenario.agent.fault_pause_s, LONGEST_FAULT_PAUSE_S)),
            ),
        )
        self._engine = self._pool.engine
        self.store = self._pool.store
        self.recorder = Recorder()
        self._changed_s = 0.0
        self._until_s = 0.0

    @property
    def now_s(self) -> float:
        """The simulated time from 0; after the end of the run, the time of the last change."""
        return self._changed_s if self.is_over else max(self._engine.now_s, self._until_s)

    @property
    def rows(self) -> list[str]:
        """Names of all slots, including CPU workers; these are rows of the chart."""
        return [slot.slot for agent in self._pool.agents.values() for slot in agent.host.slots]

    def check_requests(self) -> None:
        """Raise InvalidInput for work that the pool would refuse even with all hosts and slots in service."""
        for arrival in self._arrivals:
            try:
                with self.store.trial() as tx:
                    request = arrival.request
                    alone = changed(request, after=()) if isinstance(request, BatchRequest) else request
                    self._create(tx, alone)
            except InvalidInput as error:
                raise InvalidInput(f"{self.scenario.path}: {arrival.place}: {error}") from None

    def run(self, until_s: float) -> None:
        """Run until all work has ended or is stuck, or until `until_s`."""
        self._until_s = until_s
        self.store.watch = self._note
        for arrival in self._arrivals:
            self._pool.at(arrival.at_s, partial(self._arrive, arrival))
        for event in self.scenario.events:
            self._plan_event(event)
        chosen = self.scenario.scheduler
        intervals = Intervals(
            scheduler_s=chosen.interval_s,
            online_s=chosen.online_interval_s,
            heartbeat_s=self.scenario.agent.heartbeat_s,
        )
        self._pool.run_families(self.policies, seed=self.seed, until_s=until_s, intervals=intervals)

    @property
    def is_over(self) -> bool:
        """Whether all work has ended or is stuck."""
        return self._pool.is_over

    @property
    def failures(self) -> list[FailureCount]:
        """Failures of policies, in the order of their first occurrence."""
        return list(self._pool.failures.values())

    def unfinished(self) -> list[str]:
        """Return the names of the work that has arrived but not ended."""
        with self.store.reading() as tx:
            batches = [batch.uuid for batch in tx.batches() if batch.state not in ENDED_BATCHES]
            tasks, gangs = tx.open_tasks(), tx.open_gangs()
        return sorted({*batches, *(task.uuid for task in tasks), *(gang.uuid for gang in gangs)})

    # Course of the run ------------------------------------------------------------------------------------------

    def _note(self, before: Any, after: Any) -> None:
        self.recorder.note(before, after, self._engine.now_s)
        if not isinstance(after, Host):
            self._changed_s = self._engine.now_s

    def _when_owned(self, action: Callable[[], None]) -> None:
        """Do an action that requires an owner of the shard; while there is none, retry every `RETRY_S` seconds."""
        if self._pool.headless:
            self._pool.at(self._engine.now_s + RETRY_S, partial(self._when_owned, action))
        else:
            action()

    def _arrive(self, arrival: Arrival) -> None:
        request = arrival.request
        self._arrived.append(arrival)
        if isinstance(request, InstanceRequest):
            instance = Instance(request, self._engine.now_s)
            self.instances.append(instance)
            self._when_owned(partial(self._boot, instance))
        else:
            self._pool.change(lambda tx: self._create(tx, request))

    def _create(self, tx: Transaction, request: Request) -> None:
        now_s = self._engine.now_s
        if isinstance(request, BatchRequest):
            self.policies.check_groups(request)
            create_batch(tx, request, self.catalogue, self.settings, now_s)
        elif isinstance(request, PipelineRequest):
            create_pipeline(tx, request, self.catalogue, self.settings, now_s)
        elif isinstance(request, TaskRequest):
            create_task(tx, request, self.catalogue, self.settings, now_s)
        elif isinstance(request, GangRequest):
            create_gang(tx, request, now_s, self.policies.gangs.last_runs)

    # Instances --------------------------------------------------------------------------------------------------

    def _boot(self, instance: Instance) -> None:
        """Claim slots on the best host, or on the next one if the claim fails."""
        request, stay_s = instance.request, instance.request.stays_s or STAY_S
        if instance.state != "BUILD":
            return
        with self.store.reading() as tx:
            pool = pool_columns(tx)
        able = hosts_by_cost(pool, self.catalogue, request.wanted, stay_s)
        why = explanations(pool, self.catalogue, request.wanted, stay_s)
        reasons = [f"{host}: {reason}" for host, reason in why.items() if reason and request.host in ("", host)]
        for host in able:
            if request.host not in ("", host):
                continue
            claim = Claim(host=host, instance=request.uuid, project_id=request.project_id, wanted=request.wanted)
            try:
                self._pool.change(partial(self._claim, claim))
            except Conflict as error:
                reasons.append(str(error))
                continue
            instance.host = host
            self._becomes(instance, "ACTIVE")
            if request.stays_s is not None:
                self._pool.at(self._engine.now_s + request.stays_s, partial(self._delete, instance))
            return
        instance.why, instance.ended_s = "; ".join(reasons), self._engine.now_s
        self._becomes(instance, "ERROR")

    def _claim(self, claim: Claim, tx: Transaction) -> None:
        claim_slots(tx, claim, self.catalogue, self.settings, self._engine.now_s)

    def _delete(self, instance: Instance) -> None:
        self._when_owned(partial(self._release, instance))

    def _release(self, instance: Instance) -> None:
        if instance.state == "ACTIVE":
            request, now_s = instance.request, self._engine.now_s
            self._pool.change(lambda tx: release_slots(tx, held_by(tx, instance.host, request.uuid), now_s))
            instance.ended_s = now_s
            self._becomes(instance, "DELETED")

    def _becomes(self, instance: Instance, state: str) -> None:
        happened = Happening(
            self._engine.now_s, "instance", instance.request.uuid, "", instance.state, state, instance.host
        )
        self.recorder.history.append(happened)
        instance.state = state

    # Events -----------------------------------------------------------------------------------------------------

    def _plan_event(self, event: EventTable) -> None:
        pool = self._pool
        if event.kind == "fail":
            for slot in self._slots(event.target):
                self._plan_state(event, slot, partial(pool.fail_slot, slot), partial(pool.repair_slot, slot))
        elif event.kind == "drain":
            for slot in self._slots(event.target):
                drain, resume = partial(self._drain, slot), partial(self._resume, slot)
                self._plan_state(event, slot, partial(self._when_owned, drain), partial(self._when_owned, resume))
        elif event.kind == "leave":
            vanish, come_back = partial(pool.vanish, event.target), partial(self._come_back, event.target)
            self._plan_state(event, event.target, vanish, come_back)
        elif event.kind == "slow":
            slow = partial(pool.slow_host, event.target)
            self._plan_state(event, event.target, partial(slow, event.delay_s or 0.0), partial(slow, 0.0))
        elif event.kind == "takeover":
            self._pool.at(event.at_s, partial(pool.take_over, event.for_s or TAKEOVER_S, self.policies, self.seed))
        else:
            self._pool.at(event.at_s, partial(self._when_owned, partial(self._act, event)))

    def _plan_state(self, event: EventTable, name: str, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Schedule a lasting event; if events of one kind overlap on an object, the last of them ends the state."""
        key = event.kind, name

        def begins() -> None:
            self._under_way[key] += 1
            begin()

        def ends() -> None:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                end()

        self._pool.at(event.at_s, begins)
        if event.for_s is not None:
            self._pool.at(event.at_s + event.for_s, ends)

    def _come_back(self, host: str) -> None:
        """Restart a host; slots whose fault event has not ended fail again."""
        self._pool.come_back(host)
        for slot in self._slots(host):
            if self._under_way["fail", slot]:
                self._pool.fail_slot(slot)

    def _slots(self, target: str) -> list[str]:
        """Return the names of the slots of a host, of a card, or of a single slot with this name."""
        slots = [slot for agent in self._pool.agents.values() for slot in agent.host.slots if slot.kind != CPU]
        return [slot.slot for slot in slots if f"{slot.slot}/".startswith(f"{target}/")]

    def _drain(self, slot: str) -> None:
        def drain(tx: Transaction) -> None:
            if SLOT.allows(tx.slot(slot).state, DrainRequested):
                drain_slot(tx, slot, "", self._engine.now_s)

        self._pool.change(drain)

    def _resume(self, slot: str) -> None:
        def resume(tx: Transaction) -> None:
            if SLOT.allows(tx.slot(slot).state, ResumeRequested):
                resume_slot(tx, slot, self._engine.now_s)

        self._pool.change(resume)

    def _act(self, event: EventTable) -> None:
        """Cancel, hold or release, one by one, the pieces of work with the event's target name that have arrived."""
        act = self._cancel_one if event.kind == "cancel" else partial(self._hold_one, held=event.kind == "hold")
        for arrival in self._arrived:
            if event.target in (arrival.group, arrival.request.uuid):
                try:
                    act(arrival.request)
                except Conflict as error:
                    self.refused.append(f"{event.place}: {str(error).splitlines()[0]}")

    def _hold_one(self, request: Request, *, held: bool) -> None:
        def hold(tx: Transaction) -> None:
            change_batch(tx, request.uuid, request.project_id, BatchChange(held=held), self._engine.now_s)
            hold_jobs(tx, request.uuid, self._engine.now_s)

        self._pool.change(hold)

    def _cancel_one(self, request: Request) -> None:
        uuid, project, now_s = request.uuid, request.project_id, self._engine.now_s

        def cancel(tx: Transaction) -> None:
            if self.store.get(Task, uuid) is not None:
                cancel_task(tx, uuid, project, now_s)
            elif self.store.get(Gang, uuid) is not None:
                cancel_gang(tx, uuid, project, now_s)
            elif self.store.get(Batch, uuid) is not None:
                cancel_batch(tx, uuid, project, now_s)
                cancel_jobs(tx, uuid, now_s)

        for instance in self.instances:
            if instance.request.uuid == uuid:
                self._release(instance)
        self._pool.change(cancel)
