"""Which objects of a simulated pool are asked for by something else than their names."""

from typing import Any

from fpga_pool.model.gangs import ENDED_GANGS, LIVE_PROCESSES, Gang, Process
from fpga_pool.model.objects import ACTIVE_JOBS, Job, JobState, Lease, LeaseState
from fpga_pool.model.tasks import ENDED_TASKS, Task

#: The group of all work that has not ended, results that nobody has fetched included.
_OPEN = ("open", "")


class Index:
    """Objects that are asked for by something else than their names, by group; in a group by name.

    Without it every question about the jobs of a slot would look at all jobs that there have ever been.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], dict[str, Any]] = {}

    def replace(self, key: str, before: Any, after: Any) -> None:
        """Have what is stored under a key, None = nothing, replaced by something else."""
        was, now = _groups_of(before), _groups_of(after)
        for group in was:
            if group not in now:
                members = self._groups[group]
                del members[key]
                if not members:
                    del self._groups[group]
        for group in now:
            self._groups.setdefault(group, {})[key] = after

    def members(self, noun: str, of: str = "") -> list[Any]:
        """Return the members of a group, in the order in which they joined it."""
        return list(self._groups.get((noun, of), {}).values())


def _groups_of(thing: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(thing, Job):
        batch = ("batch", thing.batch_uuid)
        if thing.state is JobState.PENDING:
            return batch, _OPEN, ("pending", "")
        if thing.state in ACTIVE_JOBS:
            return batch, _OPEN, ("active", ""), ("slot", thing.slot)
        return (batch, _OPEN, ("held", thing.host)) if thing.state is JobState.RESULT_HELD else (batch,)
    if isinstance(thing, Lease):
        return (("lease", ""), ("lease", thing.slot)) if thing.state is LeaseState.HELD else ()
    if isinstance(thing, Process):
        live = thing.state in LIVE_PROCESSES
        return (_OPEN, ("process", ""), ("process", thing.gang_uuid)) if live else ()
    if isinstance(thing, Gang):
        return (_OPEN, ("gang", "")) if thing.state not in ENDED_GANGS else ()
    if isinstance(thing, Task):
        return (_OPEN, ("task", "")) if thing.state not in ENDED_TASKS else ()
    return ()
