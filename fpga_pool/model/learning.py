"""Learning of a policy from the outcome of its decisions, cycle by cycle.

The state of a policy is opaque plain data.  The policy updates it by events, which are plain data, too:

``placed`` work was placed by a decision of the policy;
``ended``
    such work has ended or lost its place, as ``state`` says.

Each event has ``event``, ``at`` (UTC seconds), ``kind`` (``job``, ``gang`` or ``task``) and the fields of `REPORTED`.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from fpga_pool.core.policy import PolicyState, Remembering
from fpga_pool.model.objects.gangs import ENDED_GANGS, Gang, GangState
from fpga_pool.model.objects.pool import ENDED_JOBS, Job, JobState
from fpga_pool.model.objects.tasks import ENDED_TASKS, Task, TaskState
from fpga_pool.model.transaction import PolicyMemory, Transaction, memory_uuid

Work = Job | Gang | Task
#: Fields of an event, by kind of work.
REPORTED: Mapping[type, tuple[str, ...]] = {
    Job: (
        *("uuid", "batch_uuid", "project_id", "state", "attempt", "function", "requester", "input_bytes", "host"),
        *("slot", "dispatched_at", "start_s", "end_s", "started_at", "finished_at", "compute_s"),
    ),
    Gang: (
        *("uuid", "project_id", "state", "attempt", "processes", "runtime_s", "cpu_usage", "created_at", "started_at"),
        "ended_at",
    ),
    Task: (
        *("uuid", "project_id", "state", "attempt", "function", "slots", "topology", "input_bytes", "created_at"),
        *("started_at", "ended_at"),
    ),
}
#: States of work without a place: it waits for one, or has ended.
_WITHOUT_PLACE = frozenset(
    {JobState.PENDING, GangState.QUEUED, TaskState.QUEUED, *ENDED_JOBS, *ENDED_GANGS, *ENDED_TASKS}
)


class Learning:
    """The memory of a policy during one planning cycle: it is read, updated by events, and stored.

    Parameters
    ----------
    tx
        The transaction of the snapshot.
    family
        Name of the policy's family.
    policy
        The policy; if its `observe` raises an error, it learns nothing from this cycle.

    """

    def __init__(self, tx: Transaction, family: str, policy: Any) -> None:
        self._policy: Remembering = policy
        key = memory_uuid(tx.shard.name, family, policy.name)
        stored = tx.policy_memory(key)
        self._is_new = stored is None
        self._before = stored or PolicyMemory(uuid=key, shard=tx.shard.name, family=family, policy=policy.name)
        self._memory = self._before
        self.errors: list[Exception] = []

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return self._before.policy

    @property
    def state(self) -> PolicyState:
        """State for the policy's decision; a copy, because a policy may change it in place."""
        return deepcopy(self._memory.state)

    @property
    def has_changed(self) -> bool:
        """Whether the memory has to be stored."""
        return self._memory != self._before

    def note_ends(self, find: Callable[[Collection[str]], Sequence[Work]], now_s: float) -> None:
        """Report watched work that has ended to the policy; `find` returns the existing work among the given uuids."""
        if not self._memory.watched:
            return
        found = find(self._memory.watched)
        ended = [work for work in found if work.state in _WITHOUT_PLACE]
        goes_on = tuple(sorted({work.uuid for work in found} - {work.uuid for work in ended}))
        self._memory = replace(self._memory, watched=goes_on)
        self._observe("ended", ended, now_s)

    def note_placed(self, placed: Sequence[Work], now_s: float) -> None:
        """Report to the policy which work was placed by its decision, and watch that work."""
        watched = {*self._memory.watched, *(work.uuid for work in placed)}
        self._memory = replace(self._memory, watched=tuple(sorted(watched)))
        self._observe("placed", placed, now_s)

    def save(self, tx: Transaction) -> None:
        """Store the memory, if it has changed."""
        if not self.has_changed:
            return
        if self._is_new:
            tx.add(self._memory)
        else:
            tx.save(self._memory)

    def _observe(self, kind: str, works: Sequence[Work], now_s: float) -> None:
        if not works:
            return
        state = self.state
        try:
            for work in works:
                state = self._policy.observe(_event(kind, work, now_s), state)
            # Convert it as the store will, so that state that is not plain data is refused before the commit.
            state = json.loads(json.dumps(state, allow_nan=False))
        except Exception as error:  # a policy is a plug-in, and may be wrong
            self.errors.append(error)
        else:
            self._memory = replace(self._memory, state=state)


def _event(kind: str, work: Work, now_s: float) -> dict[str, Any]:
    reported = {name: getattr(work, name) for name in REPORTED[type(work)]}
    return {"event": kind, "at": now_s, "kind": type(work).__name__.lower(), **reported}
