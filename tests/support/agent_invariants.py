"""Invariants of an agent, which hold between any two events."""

from collections.abc import Iterator

from fpga_pool.model.agent.objects import Activity, AgentSlot, AgentState, HeldJob, Phase
from fpga_pool.model.objects.pool import SlotState

#: The states that may be reported to the pool during each activity.
_STATES = {
    Activity.FREE: (SlotState.EMPTY, SlotState.READY),
    Activity.LOADING: (SlotState.LOADING,),
    Activity.SCRUBBING: (SlotState.EMPTY, SlotState.READY),
    Activity.COMPUTING: (SlotState.BUSY,),
    Activity.LENT: (SlotState.EMPTY, SlotState.READY),
    Activity.RESTING: (SlotState.EMPTY, SlotState.READY),
    Activity.FAULTED: (SlotState.FAULTED,),
}


def validate(state: AgentState) -> None:
    """Check all invariants; raise AssertionError with those that are violated."""
    broken = [*_broken_jobs(state), *_broken_slots(state)]
    if broken:
        raise AssertionError("; ".join(broken))


def _broken_jobs(state: AgentState) -> Iterator[str]:
    indexed = {(slot, uuid): job for slot, jobs in state.jobs_of_slot.items() for uuid, job in jobs.items()}
    if indexed != {(job.slot, job.uuid): job for job in state.jobs.values()}:
        yield "the jobs by slot do not match the jobs"
    for job in state.jobs.values():
        slot = state.slots.get(job.slot)  # None: a slot that the host had before its restart
        computed = ("", 0) if slot is None else (slot.job, slot.attempt)
        if job.phase is Phase.RUNNING and computed != (job.uuid, job.attempt):
            yield f"{job.uuid} is running, but {job.slot} computes {computed[0] or 'nothing'}"
        ended = job.phase in (Phase.ENDED, Phase.HELD)
        if ended != (job.result_bytes is not None) or (job.phase is Phase.HELD) != (job.finished_at is not None):
            yield f"{job.uuid} is {job.phase}, with a result of {job.result_bytes} bytes since {job.finished_at}"
        if job.phase is not Phase.ENDED and (job.phase is Phase.EVICTED) != (job.evicted_done is not None):
            yield f"{job.uuid} is {job.phase}, and its share done at an eviction is {job.evicted_done}"
    for uuid in state.ended:
        if uuid not in state.jobs or state.jobs[uuid].phase not in (Phase.ENDED, Phase.EVICTED):
            yield f"the end of {uuid} is to be recorded, but it has not ended"


def _broken_slots(state: AgentState) -> Iterator[str]:
    for slot in state.slots.values():
        if slot.state not in _STATES[slot.activity]:
            yield f"{slot.name} is {slot.activity}, but reported {slot.state}"
        if (slot.state in (SlotState.EMPTY, SlotState.FAULTED)) != (not slot.function):
            yield f"{slot.name} is {slot.state} with function {slot.function!r}"
        if (slot.activity is Activity.COMPUTING) != bool(slot.job):
            yield f"{slot.name} is {slot.activity} with job {slot.job!r}"
        if (slot.activity is Activity.LENT) != (slot.lent_to is not None):
            yield f"{slot.name} is {slot.activity}, lent to {slot.lent_to}"
        if slot.preparing is not None and slot.activity not in (Activity.SCRUBBING, Activity.LOADING):
            yield f"{slot.name} is {slot.activity}, and prepared for {slot.preparing.instance}"
        if slot.name in state.turns and (slot.activity is not Activity.FREE or slot.name in state.holds):
            yield f"{slot.name} is {slot.activity}, and waits for its turn to load"
        yield from _broken_secrets(slot, state.jobs.get(slot.job))


def _broken_secrets(slot: AgentSlot, job: HeldJob | None) -> Iterator[str]:
    """Yield violations: slots that a project uses although their memory may contain data of another one."""
    if slot.lent_to is not None and slot.memory_of not in (slot.lent_to.instance, ""):
        yield f"{slot.name} is lent to {slot.lent_to.instance} with data of {slot.memory_of}"
    if job is not None and job.attempt == slot.attempt and slot.memory_of != job.assignment.project_id:
        yield f"{slot.name} computes for {job.assignment.project_id} with data of {slot.memory_of}"
