"""The state machine of an agent: it handles all events, and returns all instructions."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fpga_pool.core.dispatch import Load, QueueEntry, Run, Wait, next_action
from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.commands import Commanding
from fpga_pool.model.agent.job import AttemptFailed, Begun, Delivered, RetentionEnded, about
from fpga_pool.model.agent.objects import Activity, AgentParameters, AgentSlot, HeldJob, Hold, HoldState, Phase
from fpga_pool.model.agent.slot import (
    SLOT,
    AheadWanted,
    ComputationBegun,
    LoadBegun,
    PreparationBegan,
    PreparationBegun,
    PreparationFailed,
    Prepared,
    RestBegun,
    RestEnded,
    UseBegun,
    UseEnded,
)
from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.messages.agents import FlowSeen, JobEvicted, JobFinished, ObservedJob, ObservedSlot
from fpga_pool.model.objects.pool import CPU, SlotState
from fpga_pool.model.values import changed

#: How long a slot waits, in seconds, for an earlier slot of its card to begin its load first (see `_waits_for_turn`).
LONGEST_TURN_S = 0.05
#: Number of events listed in the error if a transition is not possible.
HISTORY_LENGTH = 20


class Agent(Commanding):
    """The agent of one host.

    `slots` contain the constant properties of each slot, and the function that is loaded at the start.
    """

    def __init__(self, host: str, slots: Iterable[ObservedSlot], parameters: AgentParameters | None = None) -> None:
        super().__init__(host)
        self.parameters = parameters or AgentParameters()
        self._facts = {slot.slot: slot for slot in slots}
        self._cards: defaultdict[str, list[str]] = defaultdict(list)
        for slot in self._facts.values():
            self._cards[slot.card].append(slot.slot)
        pause_s = self.parameters.fault_pause_s[0]
        for name, slot in self._facts.items():
            self.state.slots[name] = AgentSlot(
                name=name, parameters=self.parameters, loads=slot.kind != CPU, fault_pause_s=pause_s,
                state=SlotState.READY if slot.function else SlotState.EMPTY, function=slot.function,
            )  # fmt: skip
        self._history: deque[tuple[float, e.AgentEvent]] = deque(maxlen=HISTORY_LENGTH)
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            e.CommandsReceived: self._commands_received,
            e.StreamSeen: self._stream_seen,
            e.InputArrived: self._input_arrived,
            e.InputUnavailable: self._input_unavailable,
            e.SmallInputsArrived: self._small_inputs_arrived,
            e.ResultsDelivered: self._results_delivered,
            e.SlotFree: self._slot_free,
            e.Loaded: self._slot_event,
            e.LoadRefused: self._load_refused,
            e.LoadFailed: self._slot_event,
            e.Scrubbed: self._slot_event,
            e.ScrubFailed: self._slot_event,
            e.CardSeen: self._slot_event,
            e.ComputationEnded: self._computation_ended,
            e.ComputationFailed: self._computation_failed,
            e.ComputationOverdue: self._computation_overdue,
            e.EndsDue: self._ends_due,
            e.EndsRecorded: self._ends_recorded,
            e.EndsLost: self._ends_lost,
            e.TimePassed: self._time_passed,
            e.Restarted: self._restarted,
        }

    def handle(self, event: e.AgentEvent, now_s: float) -> list[i.Instruction]:
        """Update the state by an event at `now_s`, UTC seconds of the pool; return the instructions.

        Raises
        ------
        StaleEpoch
            If the commands are from an owner that was replaced; the state is unchanged.
        InvalidTransition
            If the event is not possible in this state; the state is unchanged.

        """
        self.state.keep()
        self._out = []
        self._wakes = {}
        self._history.append((now_s, event))
        try:
            self._handlers[type(event)](event, now_s)
            if not (isinstance(event, e.SlotFree) and event.slot in self.state.turns):
                self._review_turns()
        except InvalidTransition as error:
            self.undo()
            before = "\n".join(f"    {at:.3f} {entry}" for at, entry in self._history)
            raise InvalidTransition(f"{error}\n  Events:\n{before}") from None
        except BaseException:
            self.undo()
            raise
        return [*self._out, *(i.WakeSlot(slot) for slot in self._wakes)]

    def undo(self) -> None:
        """Undo the last event, because its changes could not be recorded."""
        self.state.undo()

    # Observed state ---------------------------------------------------------------------------------------------

    def observed_slots(self) -> tuple[ObservedSlot, ...]:
        """Return the current state of all slots."""
        return tuple(self._observed_slot(facts) for facts in self._facts.values())

    def _observed_slot(self, facts: ObservedSlot) -> ObservedSlot:
        slot, hold = self.state.slots[facts.slot], self.state.holds.get(facts.slot)
        epoch, sequence = self.state.fences.get(facts.slot, (0, 0))
        instance = "" if hold is None else hold.action.instance
        known = {"state": slot.state, "function": slot.function, "job": slot.job, "reason": slot.reason}
        return changed(facts, **known, sequence=sequence, epoch=epoch, instance=instance)

    def observed_jobs(self, received_bytes: Callable[[str], int], now_s: float) -> tuple[ObservedJob, ...]:
        """Return all held jobs, with the progress of inputs that do not move as planned.

        `received_bytes` returns how much of a job's incomplete input has arrived.
        """
        return tuple(
            ObservedJob(
                job=job.uuid,
                attempt=job.attempt,
                slot=job.slot,
                moved_bytes=job.moved_bytes(received_bytes, now_s),
            )
            for job in self.state.jobs.values()
        )

    # Inputs and results -----------------------------------------------------------------------------------------

    def _stream_seen(self, event: e.StreamSeen, now_s: float) -> None:
        job = self.state.jobs.get(event.job)
        if job is not None and (job.attempt, job.phase) == (event.attempt, Phase.WAITING):
            address, _, port = event.source.rpartition(":")
            self._out.append(i.Report(FlowSeen(**about(job, now_s), source_address=address, source_port=int(port))))

    def _input_arrived(self, event: e.InputArrived, now_s: float) -> None:
        self._job_if_possible(event.job, event, now_s)

    def _input_unavailable(self, event: e.InputUnavailable, now_s: float) -> None:
        failed = AttemptFailed(code="fpga_pool.input_unavailable", message=event.message, retryable=True)
        self._job_if_possible(event.job, failed, now_s, event.attempt)

    def _small_inputs_arrived(self, event: e.SmallInputsArrived, now_s: float) -> None:
        for uuid in event.jobs:
            if self._job_if_possible(uuid, e.InputArrived(job=uuid), now_s):
                self._out.append(i.KeepInput(uuid))

    def _results_delivered(self, event: e.ResultsDelivered, now_s: float) -> None:
        for uuid, attempt in event.attempts:
            self._job_if_possible(uuid, Delivered(), now_s, attempt)

    def _time_passed(self, event: e.TimePassed, now_s: float) -> None:
        before_s = now_s - self.parameters.retention_s
        held = [job for job in self.state.jobs.values() if job.phase is Phase.HELD]
        for job in held:
            if (job.finished_at or 0.0) < before_s:
                self._job(job, RetentionEnded(), now_s)

    # Slots ------------------------------------------------------------------------------------------------------

    def _slot_free(self, event: e.SlotFree, now_s: float) -> None:
        """Decide what a slot does next."""
        slot, hold = self.state.slots[event.slot], self.state.holds.get(event.slot)
        if not slot.asks:
            SLOT.transition(slot, event, now_s)  # raises InvalidTransition with the possible events
        ahead, wanted = slot.ahead, None
        if ahead is not None:
            # The request to load ahead is valid now only.
            slot = self._slot(slot, AheadWanted(action=None), now_s)
            wanted = ahead.function if ahead.replaces == slot.function else None
        if slot.activity is Activity.RESTING:
            if hold is not None and hold.state is HoldState.TROUBLED:
                self._slot(slot, RestBegun(after_s=self.parameters.fault_pause_s[1]), now_s)
                return
            slot = self._slot(slot, RestEnded(), now_s)
        if slot.activity is Activity.LENT and (hold is None or not hold.ready):
            self._slot(slot, UseEnded(), now_s)
        elif hold is not None:
            self._keep(slot, hold, now_s)
        else:
            self._work(slot, wanted, now_s)

    def _keep(self, slot: AgentSlot, hold: Hold, now_s: float) -> None:
        """Scrub and load the slot for the instance that holds it, or let the instance use it if that is done."""
        if not hold.ready or (slot.state, slot.function) != (SlotState.READY, hold.action.function):
            self._hold(slot.name, PreparationBegan(slot=slot.name), now_s)
            self._slot(slot, PreparationBegun(hold=hold.action), now_s)
        elif slot.lent_to != hold.action:
            self._slot(slot, UseBegun(hold=hold.action), now_s)

    def _work(self, slot: AgentSlot, ahead: str | None, now_s: float) -> None:
        while slot.activity is Activity.FREE:
            action = self._next_action(slot, ahead)
            if isinstance(action, Load) and ahead is None and self._waits_for_turn(slot, now_s):
                return
            self.state.drop(self.state.turns, slot.name)
            if isinstance(action, Load):
                slot = self._slot(slot, LoadBegun(function=action.function), now_s)
            elif isinstance(action, Run):
                job = self.state.jobs[action.entry.key]
                slot = self._slot(slot, ComputationBegun(job=job.at(Phase.RUNNING)), now_s)
                self._job(job, Begun(), now_s)
            else:
                return

    def _next_action(self, slot: AgentSlot, ahead: str | None = None) -> Load | Run | Wait:
        jobs = [(job, job.assignment) for job in self.state.jobs_of_slot[slot.name].values()]
        queue = [
            QueueEntry(key=job.uuid, order=job_of.order, function=job_of.function, staged=job.phase is Phase.STAGED)
            for job, job_of in jobs
            if job.phase in (Phase.WAITING, Phase.STAGED)
        ]
        return next_action(queue, slot.function or None, ahead)

    def _waits_for_turn(self, slot: AgentSlot, now_s: float) -> bool:
        """Return whether an earlier slot of the card should begin its load first: its executor will ask in a moment.

        If that executor is delayed, the slot does not wait longer than LONGEST_TURN_S.
        """
        since_s = self.state.turns.get(slot.name, now_s)
        slots = (self.state.slots[name] for name in self._of_card(slot.name) if name < slot.name)
        free = [one for one in slots if one.activity is Activity.FREE and one.name not in self.state.holds]
        waits = now_s - since_s <= LONGEST_TURN_S and any(isinstance(self._next_action(one), Load) for one in free)
        if waits:
            self.state.put(self.state.turns, slot.name, since_s)
        return waits

    def _review_turns(self) -> None:
        """Wake the slots that wait for their turn to load, as it may have come."""
        for name in list(self.state.turns):
            if self.state.slots[name].activity is Activity.FREE and name not in self.state.holds:
                self._wake(name)
            else:
                self.state.drop(self.state.turns, name)

    def loads_before(self, slot: str) -> bool:
        """Return whether a load of another slot of the card is in progress that began before that of this slot.

        The loads of a card are executed in the order in which they begin, and those that can begin at the same time in
        the order of the slots' names.  Plans and simulations rely on this.
        """
        others = (self.state.slots[name] for name in self._of_card(slot))
        loading = [(one.changed_at, one.name) for one in others if one.activity is Activity.LOADING]
        return min(loading, default=(0.0, slot))[1] != slot

    def _of_card(self, slot: str) -> Sequence[str]:
        """Return the slots, including this one, whose loads are executed one after the other."""
        return self._cards[self._facts[slot].card] if self.state.slots[slot].loads else [slot]

    def _slot_event(self, event: e.SlotEvent, now_s: float) -> None:
        before = self.state.slots[event.slot]
        after = self._slot(before, event, now_s)
        if before.preparing is not None and after.preparing is None:
            hold = self.state.holds.get(event.slot)
            if hold is not None and hold.action == before.preparing:
                self._prepared(after, event, now_s)

    def _prepared(self, slot: AgentSlot, event: e.SlotEvent, now_s: float) -> None:
        """Record the outcome of the preparation of a slot for an instance."""
        if isinstance(event, e.LoadRefused):
            self._hold(slot.name, PreparationFailed(slot=slot.name, problem=event.message), now_s)
            self._slot(slot, RestBegun(after_s=self.parameters.fault_pause_s[1]), now_s)
        elif slot.state is SlotState.READY:
            self._hold(slot.name, Prepared(slot=slot.name), now_s)
        else:
            self._hold(slot.name, PreparationFailed(slot=slot.name, problem=slot.reason), now_s)

    def _load_refused(self, event: e.LoadRefused, now_s: float) -> None:
        function = self.state.slots[event.slot].function
        self._slot_event(event, now_s)
        failed = AttemptFailed(code=event.code, message=event.message, retryable=False)
        for job in list(self.state.jobs_of_slot[event.slot].values()):
            if job.assignment.function == function:
                self._job_if_possible(job.uuid, failed, now_s)

    # Computations -----------------------------------------------------------------------------------------------

    def _computation_ended(self, event: e.ComputationEnded, now_s: float) -> None:
        self._slot(self._computing(event, now_s), event, now_s)
        if self._is_current(event):
            self._job(self.state.jobs[event.job], event, now_s)
            self.state.put(self.state.ended, event.job, None)
        else:
            self._discard(event)
        self._out.append(i.RecordEnds())

    def _computation_failed(self, event: e.ComputationFailed, now_s: float) -> None:
        slot = self._computing(event, now_s)
        if self._is_current(event):
            self._job(self.state.jobs[event.job], event, now_s)
        self._slot(slot, event, now_s)
        self._discard(event)

    def _computation_overdue(self, event: e.ComputationOverdue, now_s: float) -> None:
        slot = self.state.slots[event.slot]
        if (slot.job, slot.attempt) == (event.job, event.attempt):
            self._slot(slot, event, now_s)

    def _computing(self, event: e.ComputationEnded | e.ComputationFailed, now_s: float) -> AgentSlot:
        slot = self.state.slots[event.slot]
        if (slot.job, slot.attempt) != (event.job, event.attempt):
            raise InvalidTransition(
                f"slot {slot.name}: attempt {event.attempt} of job {event.job} has not begun here, but attempt"
                f" {slot.attempt} of job {slot.job or '(none)'}"
            )
        return slot

    def _is_current(self, event: e.ComputationEnded | e.ComputationFailed) -> bool:
        """Return whether the computed attempt is still the current one of its job."""
        job = self.state.jobs.get(event.job)
        computed = (event.slot, event.attempt, Phase.RUNNING)
        return job is not None and (job.slot, job.attempt, job.phase) == computed

    def _discard(self, event: e.ComputationEnded | e.ComputationFailed) -> None:
        self._out.append(i.DeleteOutput(event.job, event.attempt))
        if event.job not in self.state.jobs:
            self._out.append(i.DeleteFiles(event.job))

    def _ends_due(self, event: e.EndsDue, now_s: float) -> None:
        """Record all ends of jobs, and then the states of slots that have not been reported since."""
        for uuid in list(self.state.ended):
            job = self.state.jobs[uuid]
            self.state.drop(self.state.ended, uuid)
            if job.phase is Phase.EVICTED:
                self._record_eviction(job, now_s)
                continue
            held = changed(job, phase=Phase.HELD, compute_s=0.0, finished_at=now_s, evicted_done=None)
            finished = JobFinished(
                **about(job, now_s),
                compute_s=job.compute_s,
                result_bytes=job.result_bytes or 0,
                result_sha256=job.result_sha256,
            )
            self._out += [i.KeepResult(job), i.KeepJob(held), i.Report(finished)]
        for slot in self.state.slots.values():
            if slot.unannounced:
                self.state.put(self.state.slots, slot.name, changed(slot, unannounced=False))
                self._out.append(i.Report(slot.report()))

    def _record_eviction(self, job: HeldJob, now_s: float) -> HeldJob:
        failed = changed(job, phase=Phase.FAILED, evicted_done=None)
        evicted = JobEvicted(**about(job, now_s), done=job.evicted_done or 0.0)
        self._out += [i.KeepJob(failed), i.Report(evicted)]
        return failed

    def _ends_recorded(self, event: e.EndsRecorded, now_s: float) -> None:
        for job in event.jobs:
            self._job_if_possible(job.uuid, event, now_s, job.attempt)

    def _ends_lost(self, event: e.EndsLost, now_s: float) -> None:
        for job in event.jobs:
            lost = self._job_if_possible(job.uuid, event, now_s, job.attempt)
            if lost and self.state.jobs[job.uuid].phase is Phase.EVICTED:
                self.state.put(self.state.ended, job.uuid, None)

    # Restart ----------------------------------------------------------------------------------------------------

    def _restarted(self, event: e.Restarted, now_s: float) -> None:
        """Restore the state from the journal: interrupted computations restart, lost files are reported."""
        state = self.state
        self._out.append(i.DeleteStrays())
        state.fences.update(event.fences)
        state.epochs.update(event.epochs)
        state.executed.update(dict.fromkeys(event.executed))
        for slot, (action, ready) in event.holds.items():
            state.holds[slot] = Hold(action=action, state=HoldState.READY if ready else HoldState.PREPARING)
        for job in event.jobs:
            self._take_up(job, event, now_s)

    def _take_up(self, job: HeldJob, event: e.Restarted, now_s: float) -> None:
        if job.phase is Phase.EVICTED:
            # Its end was not recorded before the agent died, and is lost.
            self._put(self._record_eviction(job, now_s))
            return
        self._put(job.at(Phase.STAGED) if job.phase is Phase.RUNNING else job)
        if job.phase is Phase.HELD and job.uuid not in event.results:
            self._job(job, RetentionEnded(), now_s)
        elif job.phase in (Phase.STAGED, Phase.RUNNING) and job.uuid not in event.inputs:
            lost = AttemptFailed(code="fpga_pool.input_lost", message="its input was lost in a restart", retryable=True)
            self._job(self.state.jobs[job.uuid], lost, now_s)
        elif job.phase is Phase.WAITING and job.uuid in event.inputs:
            # Only complete, verified inputs are found: a power loss happened before the journal recorded this one.
            self._job(job, e.InputArrived(job=job.uuid), now_s)
        elif job.phase is Phase.WAITING and job.assignment.sources:
            self._out.append(i.GatherInput(job))
