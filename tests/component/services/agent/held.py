"""Jobs of an agent without real slots, brought to the phase with which a test begins."""

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.agent.objects import AgentParameters, Phase
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.transfer.handler import JobResult

SLOT, OTHER = "h0/sim0/slot0", "h0/sim0/slot1"


class Jobs(AgentShell):
    """The shell of an agent, by default with two slots. The test acts as their executors."""

    def __init__(self, journal, state_dir, clock, slots=(SLOT, OTHER)):
        slots = [
            ObservedSlot(slot=name, card="sim0", region=name[-5:], board="b", kind="small", state=SlotState.EMPTY)
            for name in slots
        ]
        super().__init__(Agent("h0", slots, AgentParameters(retention_s=100.0)), journal, state_dir, clock)

    def order(self, command):
        """Execute one command. Each epoch belongs to another shard, so that only slots refuse late commands."""
        (outcome,) = self.execute(f"s{command.epoch}", command.epoch, [command])
        return outcome

    def next(self, slot=SLOT):
        """Let the executor of a slot ask for instructions, and do all but compute; return the remaining ones."""
        while True:
            instructions = self.feed(e.SlotFree(slot=slot))
            if not instructions or not isinstance(instructions[0], i.LoadSlot):
                return instructions
            self.feed(e.Loaded(slot=slot))

    def started(self, slot=SLOT):
        """Let a slot start to compute; return the job."""
        (compute,) = self.next(slot)
        return compute.job

    def failed(self, job, code, message, *, retryable):
        self.feed(
            e.ComputationFailed(
                slot=job.slot, job=job.uuid, attempt=job.attempt, code=code, message=message, retryable=retryable
            )
        )

    def finished(self, job, compute_s, result):
        self.keep_result(job, result)
        self.feed(
            e.ComputationEnded(
                slot=job.slot,
                job=job.uuid,
                attempt=job.attempt,
                compute_s=compute_s,
                result_bytes=result.size_bytes,
                result_sha256=result.sha256,
            )
        )


def give(jobs, commands, uuid="j", phase=Phase.STAGED, **fields):
    """Create a job and bring it to a phase."""
    assert jobs.order(commands.assign(uuid, **fields)).outcome == "accepted"
    if phase is Phase.WAITING:
        return None
    jobs.files.input_path(uuid).write_bytes(b"input")
    jobs.staged(uuid)
    if phase is Phase.STAGED:
        return None
    running = jobs.started(fields.get("slot", SLOT))
    if phase is Phase.FAILED:
        jobs.failed(running, "c", "m", retryable=True)
    if phase is Phase.HELD:
        finish(jobs, running)
    return running


def finish(jobs, running):
    jobs.files.sink_path(running.uuid, running.attempt).write_bytes(b"output")
    jobs.finished(running, 0.5, JobResult(jobs.files.result_path(running.uuid), 6, "ab" * 32))


def files(tmp_path):
    return sorted(f"{name}/{p.name}" for name in ("inputs", "results") for p in (tmp_path / name).iterdir())


def give_small(jobs, commands, uuid="j", phase=Phase.STAGED, **fields):
    """Create a job whose input and result are in the journal, and bring it to a phase."""
    jobs.order(commands.assign(uuid, **fields))
    jobs.staged_small([(uuid, b"input")])
    if phase is Phase.STAGED:
        return None
    running = jobs.started(fields.get("slot", SLOT))
    if phase is Phase.HELD:
        finish_small(jobs, running)
    return running


def finish_small(jobs, running):
    result = JobResult(jobs.files.result_path(running.uuid), 6, "ab" * 32, b"output")
    jobs.finished(running, 0.5, result)
