"""Agents in simulated time: the state machine of the service (`model.agent`) with a simulated host around it.

Modelled parts of the host: loads, which use a card's configuration port one after the other; computations and arrivals
of inputs, whose times come from the surroundings; slots that fail; hosts that vanish and return with the state in their
journal.  Not modelled: the DMA bandwidth shared by the slots of a card, the time to clear a memory, and computations of
guests on slots held by their instances.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.agent.objects import Activity, AgentParameters, HeldJob, Phase
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.agents import AssignJob, Command, Heartbeat, ObservedJob, ObservedSlot, Outcome, RetimeJob
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.values import changed
from fpga_pool.sim.engine import INSTANT_S, Delays, Engine, InstantExecutor, MemoryJournal, Surroundings
from fpga_pool.sim.hosts import SimulatedHost


class SimulatedAgent:
    """The agent of one host: it executes commands and makes reports at their simulated times."""

    def __init__(
        self,
        host: SimulatedHost,
        engine: Engine,
        catalogue: Catalogue,
        surroundings: Surroundings,
        delays: Delays | None = None,
        parameters: AgentParameters | None = None,
    ) -> None:
        self.host = host
        self._engine = engine
        self._catalogue = catalogue
        self._surroundings = surroundings
        self._delays = delays or Delays()
        self._parameters = parameters or AgentParameters()
        self._slots = {slot.slot: slot for slot in host.slots}
        self._journal = MemoryJournal()
        #: Jobs whose complete input is on this host.
        self._inputs: set[str] = set()
        self._beats = 0
        self._boots = 0
        self.present = False
        self._carried_out: dict[type, Callable[..., object]] = {
            i.LoadSlot: self._load,
            i.ScrubSlot: self._scrub,
            i.Compute: self._compute,
            i.CheckCard: self._check_card,
            i.WakeSlot: lambda wake: self._ask(wake.slot),
            i.StopComputation: self._stop,
            i.RecordEnds: self._record_ends,
            i.DeleteFiles: lambda files: self._inputs.discard(files.job),
            i.DeleteInput: lambda files: self._inputs.discard(files.job),
            # These are not modelled.
            i.Answer: lambda _: None,
            i.BeginGuestUse: lambda _: None,
            i.EndGuestUse: lambda _: None,
            i.Settle: lambda _: None,
            i.GatherInput: lambda _: None,  # its arrival time comes from the surroundings, as for other inputs
            i.DeleteOutput: lambda _: None,
            i.DeleteStrays: lambda _: None,
        }
        self._numbers = itertools.count(1)
        self._begin(host.slots)

    # Requests of the pool ---------------------------------------------------------------------------------------

    def execute(self, shard: str, epoch: int, commands: Sequence[Command]) -> list[Outcome]:
        """Execute commands of the owner of a shard; they are lost while the host is absent.

        Raises StaleEpoch if a later owner of the shard is known.
        """
        if not self.present:
            return []
        jobs = self.machine.state.jobs
        event = e.CommandsReceived(
            shard=shard,
            epoch=epoch,
            commands=tuple(commands),
            inputs=frozenset(self._inputs),
            progress={uuid: self._progress(job) for uuid, job in jobs.items() if job.phase is Phase.RUNNING},
        )
        instructions = self.machine.handle(event, self._engine.now_s)
        wakes = [one for one in instructions if isinstance(one, i.WakeSlot)]
        self._carry_out([one for one in instructions if not isinstance(one, i.WakeSlot)])
        for command in commands:
            if isinstance(command.action, AssignJob | RetimeJob):
                self._await_input(command.action.job, command.action.attempt)
        self._carry_out(wakes)
        return [one.outcome for one in instructions if isinstance(one, i.Answer)]

    def heartbeat(self) -> Heartbeat:
        """Return the observed state of the host now."""
        self._beats += 1
        return Heartbeat(
            host=self.host.name,
            agent_id="simulated",
            boot=self._boots,
            beat=self._beats,
            at=self._engine.now_s,
            egress_bps=self.host.egress_bps,
            ingress_bps=self.host.ingress_bps,
            data_address="",
            data_port=0,
            slots=self.machine.observed_slots(),
            jobs=self.observed_jobs(),
        )

    def observed_jobs(self) -> tuple[ObservedJob, ...]:
        """Return the jobs on this host, with the received bytes of inputs that do not move as planned."""
        jobs = self.machine.state.jobs

        def received(uuid: str) -> int:
            return self._surroundings.received_bytes(jobs[uuid].assignment)

        return self.machine.observed_jobs(received, self._engine.now_s)

    # Failures and recovery --------------------------------------------------------------------------------------

    def fail_slot(self, name: str) -> None:
        """Make a slot fail, until it is repaired; its running job is lost."""
        executor, slot = self._executors[name], self.machine.state.slots[name]
        if not self.present or executor.broken:
            return
        executor.broken = True
        if executor.computing is not None:
            self._end_computation(name, "fpga_pool.slot_fault", "simulated", slot_failed=True)
        elif slot.activity in (Activity.LOADING, Activity.SCRUBBING):
            executor.number = next(self._numbers)
            failed = e.LoadFailed if slot.activity is Activity.LOADING else e.ScrubFailed
            self._answer(failed(slot=name, reason="simulated"))
        else:
            self._feed(e.CardSeen(slot=name, present=False, reason="simulated"))

    def fail_computation(self, name: str) -> bool:
        """Make the computation on a slot fail, without harm to the slot; return False if there was none."""
        if not self.present or self._executors[name].computing is None:
            return False
        self._end_computation(name, "fpga_pool.job_fault", "simulated")
        return True

    def repair_slot(self, name: str) -> None:
        """Make a failed slot work again."""
        executor = self._executors[name]
        if executor.broken:
            executor.broken = False
            self._check_card_now(name, executor.number)

    def vanish(self) -> None:
        """Power off the host without a message; its running jobs are lost."""
        self.present = False
        for executor in self._executors.values():
            executor.number = next(self._numbers)

    def come_back(self) -> None:
        """Restart with empty slots, from the state in the journal."""
        self._begin([changed(slot, state=SlotState.EMPTY, function="") for slot in self.host.slots])

    def _begin(self, slots: Sequence[ObservedSlot]) -> None:
        self.present = True
        self._boots += 1
        self.machine = Agent(self.host.name, slots, self._parameters)
        self._executors = {name: InstantExecutor() for name in self._slots}
        self._port_free_s: dict[str, float] = {}
        self._feed(self._journal.restarted(self._inputs))
        for job in list(self.machine.state.jobs.values()):
            self._await_input(job.uuid, job.attempt)
            self._await_delivery(job)
        for slot in self._slots:
            self._ask(slot)

    # The state machine ------------------------------------------------------------------------------------------

    def _feed(self, event: e.AgentEvent) -> None:
        if self.present:
            self._carry_out(self.machine.handle(event, self._engine.now_s))

    def _carry_out(self, instructions: Sequence[i.Instruction]) -> None:
        recorded = [one for one in instructions if isinstance(one, i.RecordInstruction)]
        for record in recorded:
            self._journal.record(record)
        reports = [record.report for record in recorded if isinstance(record, i.Report | i.ReportLater)]
        if reports:
            self._surroundings.report(self.host.name, reports)
        for instruction in instructions:
            if not isinstance(instruction, i.RecordInstruction):
                self._carried_out[type(instruction)](instruction)

    def _begin_instruction(self, slot: str) -> int:
        executor = self._executors[slot]
        executor.busy, executor.number = True, next(self._numbers)
        return executor.number

    def _answer(self, event: e.SlotEvent) -> None:
        """Report the end of an instruction, and request the next."""
        self._executors[event.slot].busy = False
        self._feed(event)
        self._ask(event.slot)

    def _ask(self, slot: str) -> None:
        if not self._executors[slot].busy and self.machine.state.slots[slot].asks:
            self._feed(e.SlotFree(slot=slot))

    # Slots ------------------------------------------------------------------------------------------------------

    def _load(self, load: i.LoadSlot) -> None:
        number, facts = self._begin_instruction(load.slot), self._slots[load.slot]
        begins_s = max(self._engine.now_s, self._port_free_s.get(facts.card, 0.0))
        ends_s = begins_s + self._catalogue.board(facts.board).load_s(facts.kind)
        self._port_free_s[facts.card] = ends_s
        self._engine.at(ends_s, partial(self._ended, number, e.Loaded(slot=load.slot)))

    def _ended(self, number: int, event: e.SlotEvent) -> None:
        if self._executors[event.slot].number == number:
            self._answer(event)

    def _scrub(self, scrub: i.ScrubSlot) -> None:
        number = self._begin_instruction(scrub.slot)
        self._engine.after(0.0, partial(self._ended, number, e.Scrubbed(slot=scrub.slot)))

    def _compute(self, compute: i.Compute) -> None:
        number, executor = self._begin_instruction(compute.slot), self._executors[compute.slot]
        assignment = compute.job.assignment
        whole_s = self._surroundings.seconds(assignment, self._slots[compute.slot].board)
        executor.computing, executor.began_s = compute, self._engine.now_s
        executor.lasts_s = whole_s * (1.0 - assignment.done)
        if executor.lasts_s > compute.limit_s:
            self._engine.after(compute.limit_s, partial(self._overdue, compute, number))
        self._engine.after(executor.lasts_s, partial(self._computed, compute, number))

    def _overdue(self, compute: i.Compute, number: int) -> None:
        if self._executors[compute.slot].number == number:
            job = compute.job
            self._feed(e.ComputationOverdue(slot=compute.slot, job=job.uuid, attempt=job.attempt))

    def _computed(self, compute: i.Compute, number: int) -> None:
        executor = self._executors[compute.slot]
        if executor.number != number:
            return
        executor.computing = None
        assignment = compute.job.assignment
        size = self._catalogue.function(assignment.function).result_size
        self._feed(
            e.ComputationEnded(
                slot=compute.slot,
                job=compute.job.uuid,
                attempt=compute.job.attempt,
                compute_s=executor.lasts_s,
                result_bytes=0 if size is None else size.bytes(assignment.input_bytes),
                result_sha256="",
            )
        )
        self._engine.after(self._delays.turnaround_s, partial(self._turned, compute.slot, number))

    def _turned(self, slot: str, number: int) -> None:
        executor = self._executors[slot]
        if executor.number == number:
            executor.busy = False
            self._ask(slot)

    def _stop(self, stop: i.StopComputation) -> None:
        compute = self._executors[stop.slot].computing
        if compute is not None and (compute.job.uuid, compute.job.attempt) == (stop.job, stop.attempt):
            self._end_computation(stop.slot, "fpga_pool.stopped", "stopped by its agent")

    def _end_computation(self, slot: str, code: str, message: str, *, slot_failed: bool = False) -> None:
        executor = self._executors[slot]
        compute, executor.computing = executor.computing, None
        assert compute is not None  # noqa: S101  # asked for by who has seen it
        executor.number = next(self._numbers)
        self._answer(
            e.ComputationFailed(
                slot=slot,
                job=compute.job.uuid,
                attempt=compute.job.attempt,
                code=code,
                message=message,
                retryable=True,
                slot_failed=slot_failed,
            )
        )

    def _progress(self, job: HeldJob) -> float:
        """Return the share of a running job's work that is done."""
        executor = self._executors[job.slot]
        done, left = job.assignment.done, 1.0 - job.assignment.done
        if executor.lasts_s <= 0.0:
            return 1.0
        return done + left * min((self._engine.now_s - executor.began_s) / executor.lasts_s, 1.0)

    def _check_card(self, instruction: i.CheckCard) -> None:
        executor = self._executors[instruction.slot]
        executor.busy, executor.number = False, next(self._numbers)
        if not executor.broken:  # a broken slot is checked when it is repaired
            self._engine.after(instruction.after_s, partial(self._check_card_now, instruction.slot, executor.number))

    def _check_card_now(self, slot: str, number: int) -> None:
        executor = self._executors[slot]
        if executor.number == number and not executor.busy:
            function = self.machine.state.slots[slot].function
            self._answer(e.CardSeen(slot=slot, present=not executor.broken, function=function))

    # Inputs and results -----------------------------------------------------------------------------------------

    def _await_input(self, uuid: str, attempt: int) -> None:
        """Stage a job if its input has arrived, else wait for the arrival; a new plan may have changed the time."""
        job = self.machine.state.jobs.get(uuid)
        if not self.present or job is None or job.phase is not Phase.WAITING or job.attempt != attempt:
            return
        arrives_s = self._surroundings.arrives_at(job.assignment) + self._delays.staging_s
        if arrives_s > self._engine.now_s + INSTANT_S:
            self._engine.at(arrives_s, partial(self._await_input, uuid, attempt))
        elif problem := self._surroundings.lost_source(job.assignment):
            self._feed(e.InputUnavailable(job=uuid, attempt=attempt, message=problem))
        else:
            self._inputs.add(uuid)
            self._feed(e.InputArrived(job=uuid, took_s=self._surroundings.input_age_s(job.assignment)))

    def _record_ends(self, _: i.RecordEnds) -> None:
        """Record the ends of jobs at once; each result is delivered to its client as planned."""
        ended = tuple(self.machine.state.jobs[uuid] for uuid in self.machine.state.ended)
        self._feed(e.EndsDue())
        held = tuple(self._journal.jobs[job.uuid] for job in ended)
        self._feed(e.EndsRecorded(jobs=held))
        for job in held:
            self._await_delivery(job)

    def _await_delivery(self, job: HeldJob) -> None:
        """Deliver a result, if a client fetches it, when its planned transfer after the job's end is complete."""
        if job.finished_at is None or not self._surroundings.is_fetched(job.uuid):
            return
        transfer = job.assignment.result_transfer
        due_s = job.finished_at + (transfer[-1].end_s if transfer else 0.0)
        if due_s > self._engine.now_s:
            self._engine.at(due_s, partial(self._deliver, job))
        else:
            self._deliver(job)

    def _deliver(self, job: HeldJob) -> None:
        self._feed(e.ResultsDelivered(attempts=((job.uuid, job.attempt),)))
