"""Whether what happens differs so much from the plan that the rest is to be planned again."""

from collections.abc import Callable

from fpga_pool.model.objects import Job
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.progress import late_s as transfer_late_s
from fpga_pool.model.transaction import Transaction

#: The longest time between two looks while nothing comes of them, as a multiple of the shortest.
_LONGEST_PAUSE = 8


class ReplanTrigger:
    """Looks at the work under way of one shard, now and then.

    What it remembers spares looks, and is not stored with the shard: whoever takes over looks once more than needed,
    and what is planned again then depends on the stored objects alone.
    """

    def __init__(self, settings: PoolSettings, is_planned: Callable[[str], bool] = lambda _: True) -> None:
        self._settings = settings
        #: Says of a batch's policy, by name, that it plans: what another one's jobs do is no news for a plan.
        self._is_planned = is_planned
        self._next_at = 0.0
        self._pause_s = settings.replan_late_s
        #: How late jobs were when the rest was planned again for them.
        self._known_late_s: dict[str, float] = {}
        #: Slots that had nothing to do when that was looked at last.
        self._idle: frozenset[str] = frozenset()

    def reason(self, tx: Transaction, now_s: float) -> str:
        """Return what differs, for people; "" = nothing that is new, or it is not time to look."""
        if now_s < self._next_at:
            return ""
        self._next_at = now_s + self._pause_s
        if not any(map(self._is_planned, tx.policies_at_work())):
            return ""
        return self._lateness(tx, now_s) or self._idleness(tx, now_s)

    def answered(self, *, changed: bool) -> None:
        """Take note of whether a re-plan for what was found has changed anything; if not, look less often."""
        shortest_s = self._settings.replan_late_s
        self._pause_s = shortest_s if changed else min(2 * self._pause_s, _LONGEST_PAUSE * shortest_s)

    def _lateness(self, tx: Transaction, now_s: float) -> str:
        """Say whether a job, or its input, is late, or twice as late as when it was noticed last."""
        late_s = {uuid: now_s - due_at for uuid, due_at in tx.overdue(now_s - self._settings.replan_late_s).items()}
        for job in tx.astray():
            seconds = _input_late_s(job)
            if seconds > max(self._settings.replan_late_s, late_s.get(job.uuid, 0.0)):
                late_s[job.uuid] = seconds
        known = {uuid: self._known_late_s[uuid] for uuid in late_s if uuid in self._known_late_s}
        new = [uuid for uuid, seconds in late_s.items() if seconds >= 2 * known.get(uuid, 0.0)]
        self._known_late_s = known | {uuid: late_s[uuid] for uuid in new}
        new = [job.uuid for job in tx.jobs(new) if self._is_planned(tx.batch(job.batch_uuid).policy)]
        if not new:
            return ""
        worst = max(new, key=late_s.__getitem__)
        return f"{len(new)} jobs are late, job {worst} by {late_s[worst]:.2f} s"

    def _idleness(self, tx: Transaction, now_s: float) -> str:
        """Say whether a slot has nothing to do while others have more than they can begin soon."""
        backlogs = tx.backlogs()
        if max((backlog.free_at for backlog in backlogs), default=0.0) - now_s <= 2 * self._settings.replan_horizon_s:
            self._idle = frozenset()
            return ""
        idle = frozenset(slot.name for slot in tx.slots()) - {backlog.slot for backlog in backlogs}
        new, self._idle = idle - self._idle, idle
        return f"{len(new)} slots have nothing to do while others have" if new else ""


def _input_late_s(job: Job) -> float:
    """Return by how much an input was behind its plan when its responder told of it."""
    if not job.transfer or job.moved_bytes is None or job.moved_at is None or job.dispatched_at is None:
        return 0.0
    return transfer_late_s(job.transfer, job.input_bytes, job.moved_bytes, job.moved_at - job.dispatched_at)
