"""Jobs of an agent, without slots, brought to the phases that tests begin with."""

from fpga_pool.dataplane.handler import JobResult
from fpga_pool.model.messages import SlotChanged
from fpga_pool.model.objects import SlotState
from fpga_pool.services.agent.journal import Phase

SLOT, OTHER = "h0/sim0/slot0", "h0/sim0/slot1"


def busy(slot=SLOT):
    return SlotChanged(slot=slot, at=1.0, state=SlotState.BUSY, function="sha256")


def ready(slot=SLOT):
    return SlotChanged(slot=slot, at=1.0, state=SlotState.READY, function="sha256")


def give(jobs, commands, uuid="j", phase=Phase.STAGED, **fields):
    """Bring a job to a phase."""
    assert jobs.execute(commands.assign(uuid, **fields)).outcome == "accepted"
    if phase is Phase.WAITING:
        return None
    jobs.files.input_path(uuid).write_bytes(b"input")
    jobs.staged(uuid)
    if phase is Phase.STAGED:
        return None
    running = jobs.started(uuid, busy(fields.get("slot", SLOT)))
    if phase is Phase.FAILED:
        jobs.failed(running, "c", "m", retryable=True)
    if phase is Phase.HELD:
        finish(jobs, running)
    return running


def finish(jobs, running):
    jobs.files.sink_path(running).write_bytes(b"output")
    jobs.finished(running, 0.5, JobResult(jobs.files.result_path(running.uuid), 6, "ab"), ready(running.slot))


def files(tmp_path):
    return sorted(f"{name}/{p.name}" for name in ("inputs", "results") for p in (tmp_path / name).iterdir())


def give_small(jobs, commands, uuid="j", phase=Phase.STAGED, **fields):
    """Bring a job to a phase whose input and result are in the journal."""
    jobs.execute(commands.assign(uuid, **fields))
    jobs.staged_small([(uuid, b"input")])
    if phase is Phase.STAGED:
        return None
    running = jobs.started(uuid, busy())
    if phase is Phase.HELD:
        finish_small(jobs, running)
    return running


def finish_small(jobs, running):
    result = JobResult(jobs.files.result_path(running.uuid), 6, "ab", b"output")
    jobs.finished(running, 0.5, result, ready(running.slot))
