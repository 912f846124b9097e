"""Effects of commands on an agent: each command is executed once, in the order of its slot, or refused."""

from collections.abc import Mapping

from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.events import CommandsReceived
from fpga_pool.model.agent.job import JOB, Evicted, Replaced, about
from fpga_pool.model.agent.objects import AgentSlot, AgentState, HeldJob, Hold, Phase
from fpga_pool.model.agent.slot import HOLD, SLOT, AheadWanted, FreeRequested, HoldRequested
from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages.agents import (
    AssignJob,
    Command,
    EvictJob,
    FreeSlot,
    HoldSlot,
    InputStaged,
    LoadFunction,
    Outcome,
    ReleaseJob,
    RetimeJob,
)
from fpga_pool.model.objects.pool import SlotState


class Commanding:
    """The part of `machine.Agent` that executes commands, and the steps common to all events."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.state = AgentState()
        #: Results of the current event: instructions, and slots that may have something to do.
        self._out: list[i.Instruction] = []
        self._wakes: dict[str, None] = {}

    # Steps ------------------------------------------------------------------------------------------------------

    def _put(self, job: HeldJob) -> None:
        self.state.put_job(job)
        if job.phase in (Phase.WAITING, Phase.STAGED):
            self._wake(job.slot)

    def _wake(self, slot: str) -> None:
        known = self.state.slots.get(slot)  # None if the host had the job's slot only before its last start
        if known is not None and known.asks:
            self._wakes[slot] = None

    def _job(self, job: HeldJob, event: object, now_s: float) -> HeldJob | None:
        """Apply an event to a job."""
        after, instructions = JOB.transition(job, event, now_s)
        self._out += instructions
        if after is None:
            self.state.drop_job(job.uuid)
        elif after is not job:
            self._put(after)
        return after

    def _job_if_possible(self, uuid: str, event: object, now_s: float, attempt: int | None = None) -> bool:
        """Apply an event to a job, and return True, if it is held (as this attempt) and its state allows the event."""
        job = self.state.jobs.get(uuid)
        if job is None or attempt not in (None, job.attempt) or not JOB.allows(job.phase, type(event)):
            return False
        self._job(job, event, now_s)
        return True

    def _slot(self, slot: AgentSlot, event: object, now_s: float) -> AgentSlot:
        """Apply an event to a slot."""
        after, instructions = SLOT.transition(slot, event, now_s)
        assert after is not None  # noqa: S101  # slots are there for good
        self._out += instructions
        if after is not slot:
            self.state.put(self.state.slots, slot.name, after)
        return after

    def _hold(self, slot: str, event: object, now_s: float) -> None:
        """Apply an event to the hold of a slot."""
        hold = self.state.holds[slot]
        after, instructions = HOLD.transition(hold, event, now_s)
        self._out += instructions
        if after is None:
            self.state.drop(self.state.holds, slot)
        elif after is not hold:
            self.state.put(self.state.holds, slot, after)

    # Commands ---------------------------------------------------------------------------------------------------

    def _commands_received(self, event: CommandsReceived, now_s: float) -> None:
        known = self.state.epochs.get(event.shard, 0)
        if event.epoch < known:
            raise StaleEpoch(
                f"host {self.host} accepts commands of epoch {known} of shard {event.shard}: epoch {event.epoch} is "
                "over"
            )
        if event.epoch > known:
            self.state.put(self.state.epochs, event.shard, event.epoch)
            self._out.append(i.KeepEpoch(event.shard, event.epoch))
        for command in event.commands:
            outcome = self.refusal(command) or self._execute(command, event, now_s)
            self._out.append(i.Answer(outcome))

    def refusal(self, command: Command) -> Outcome | None:
        """Return the outcome of a command that is not executed (unknown slot, repeated or outdated); None = execute."""
        if command.host != self.host or command.slot not in self.state.slots:
            reason = f"no slot {command.slot} on host {self.host}"
            return Outcome(command=command.id, outcome="refused", reason=reason)
        if command.id in self.state.executed:
            return Outcome(command=command.id, outcome="repeated")
        epoch, sequence = self.state.fences.get(command.slot, (0, 0))
        if command.fence <= (epoch, sequence):
            reason = (
                f"{command.slot} has executed command {sequence} of epoch {epoch}: {command.sequence} of epoch"
                f" {command.epoch} is outdated, or from a replaced scheduler"
            )
            return Outcome(command=command.id, outcome="refused", reason=reason)
        return None

    def _execute(self, command: Command, event: CommandsReceived, now_s: float) -> Outcome:
        action, slot = command.action, command.slot
        if isinstance(action, AssignJob):
            self._assign(slot, action, action.job in event.inputs and not self._deleted(action.job), now_s)
        elif isinstance(action, RetimeJob):
            self._job_if_possible(action.job, action, now_s, action.attempt)
        elif isinstance(action, ReleaseJob):
            self._job_if_possible(action.job, action, now_s)
        elif isinstance(action, EvictJob):
            self._evict(slot, action, event.progress, now_s)
        elif isinstance(action, HoldSlot | FreeSlot):
            self._keep_or_free(slot, action, now_s)
        elif isinstance(action, LoadFunction):
            self._load_ahead(slot, action, now_s)
        else:
            reason = f"{type(action).__name__} is not a command for a slot"
            return Outcome(command=command.id, outcome="refused", reason=reason)
        self.state.put(self.state.fences, slot, command.fence)
        self.state.remember(command.id)
        self._out.append(i.KeepCommand(command))
        return Outcome(command=command.id, outcome="accepted")

    def _deleted(self, job: str) -> bool:
        """Return whether an earlier command of the same event deletes the job's input from the disk or the journal."""
        return i.DeleteFiles(job) in self._out or i.ForgetJob(job) in self._out

    def _assign(self, slot: str, action: AssignJob, input_here: bool, now_s: float) -> None:
        known = self.state.jobs.get(action.job)
        if known is not None:
            self._job(known, Replaced(), now_s)
        job = HeldJob(slot=slot, assignment=action, phase=Phase.STAGED if input_here else Phase.WAITING)
        self._put(job)
        self._out.append(i.KeepJob(job))
        if input_here:  # kept from an earlier attempt
            self._out.append(i.Report(InputStaged(**about(job, now_s))))
        elif action.sources:
            self._out.append(i.GatherInput(job))

    def _evict(self, slot: str, action: EvictJob, progress: Mapping[str, float], now_s: float) -> None:
        """Evict an attempt and keep its input; a completed attempt stays completed."""
        job = self.state.jobs.get(action.job)
        if job is None or job.slot != slot:
            return
        done = progress.get(job.uuid, 0.0) if job.phase is Phase.RUNNING else job.assignment.done
        evicted = Evicted(done=done if action.keep_progress else 0.0)
        self._job_if_possible(job.uuid, evicted, now_s, action.attempt)

    def _keep_or_free(self, slot: str, action: HoldSlot | FreeSlot, now_s: float) -> None:
        hold = self.state.holds.get(slot)
        if hold is not None:
            event = HoldRequested if isinstance(action, HoldSlot) else FreeRequested
            self._hold(slot, event(slot=slot, action=action), now_s)  # type: ignore[arg-type]
        elif isinstance(action, HoldSlot):
            hold = Hold(action=action)
            self.state.put(self.state.holds, slot, hold)
            self._out.append(i.KeepHold(slot, hold))
        self._slot(self.state.slots[slot], AheadWanted(action=None), now_s)
        self._wake(slot)

    def _load_ahead(self, slot: str, action: LoadFunction, now_s: float) -> None:
        """Let a slot load a function ahead of jobs if it is idle now; otherwise ignore the request."""
        if self.state.slots[slot].state in (SlotState.EMPTY, SlotState.READY):
            self._slot(self.state.slots[slot], AheadWanted(action=action), now_s)
            self._wake(slot)
