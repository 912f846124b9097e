"""The state of an agent: what `machine.Agent` changes, and takes back if it could not be recorded."""

from collections import OrderedDict, defaultdict
from typing import Any

from fpga_pool.model.agent.objects import AgentSlot, HeldJob, Hold, Phase

#: Commands whose repetition is answered; older ones are refused as late, which comes to the same.
REMEMBERED = 100_000

_ABSENT = object()


class AgentState:
    """Jobs, slots and holds of one agent, and which commands it has executed.

    Reading is free; changes are made by `put` and `drop`, so that they can be taken back.
    """

    def __init__(self) -> None:
        self.slots: dict[str, AgentSlot] = {}
        self.jobs: dict[str, HeldJob] = {}
        #: The same jobs by slot.
        self.jobs_of_slot: defaultdict[str, dict[str, HeldJob]] = defaultdict(dict)
        #: Jobs whose end, or eviction after it, is to be recorded, in this order.
        self.ended: dict[str, None] = {}
        #: By slot.
        self.holds: dict[str, Hold] = {}
        #: By slot: epoch and sequence of the last command.
        self.fences: dict[str, tuple[int, int]] = {}
        #: By shard: the latest epoch in which somebody gave commands.
        self.epochs: dict[str, int] = {}
        #: The latest commands, the oldest first.  Not a dict, which finds its first entry the more slowly the more were
        #: removed before it.
        self.executed: OrderedDict[str, None] = OrderedDict()
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Change or add an entry."""
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove an entry, if it is there."""
        if key in table:
            self._undo.append((table, key, table.pop(key)))

    def put_job(self, job: HeldJob) -> None:
        """Hold a job, in place of what was held of it."""
        known = self.jobs.get(job.uuid)
        if known is not None and known.slot != job.slot:
            self.drop(self.jobs_of_slot[known.slot], job.uuid)
        self.put(self.jobs, job.uuid, job)
        self.put(self.jobs_of_slot[job.slot], job.uuid, job)
        if job.phase not in (Phase.ENDED, Phase.EVICTED):
            self.drop(self.ended, job.uuid)

    def drop_job(self, uuid: str) -> None:
        """Hold a job no more."""
        known = self.jobs[uuid]
        self.drop(self.jobs, uuid)
        self.drop(self.jobs_of_slot[known.slot], uuid)
        self.drop(self.ended, uuid)

    def remember(self, command: str) -> None:
        """Note that a command is executed; the oldest are forgotten when the change is kept."""
        self.put(self.executed, command, None)

    def keep(self) -> None:
        """Keep all changes made so far, whatever comes."""
        self._undo.clear()
        while len(self.executed) > REMEMBERED:
            self.executed.popitem(last=False)

    def undo(self) -> None:
        """Take back all changes since `keep`."""
        while self._undo:
            table, key, before = self._undo.pop()
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
