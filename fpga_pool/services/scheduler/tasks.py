"""Tasks of one shard: look, decide, commit; on events and every interval (paper 004)."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec

import numpy as np

from fpga_pool.core.lattice.paper import ListPolicy
from fpga_pool.core.lattice.shapes import allotted_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.policy import Preparing, Searching, TaskPolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.pool.task_enclosures import Solution
from fpga_pool.model.pool.tasks import Choice, TaskView, choose, commit_choices, task_view
from fpga_pool.model.transaction import Transaction
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: Effort of a policy that searches: what it plans for later is planned anew at the next event.
EFFORT = 20
#: A policy that fails is not asked again for so long; tasks begin in order of arrival meanwhile.
PUT_OFF_S = 60.0

Transactions = Callable[[], AbstractContextManager[Transaction]]


def _quick(policy: TaskPolicy) -> TaskPolicy:
    """Return a policy that searches for a moment at most; where its loops are not compiled it does not search."""
    if not isinstance(policy, Searching):
        return policy
    return policy.searching(EFFORT if find_spec("numba") else 0, None, time.monotonic)


class TaskPlanner:
    """Gives tasks their slots: all that each needs, or none."""

    def __init__(
        self,
        reading: Transactions,
        transactions: Transactions,
        catalogue: Catalogue,
        settings: PoolSettings,
        policy: TaskPolicy,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        self._reading = reading
        self._transactions = transactions
        self._catalogue = catalogue
        self._settings = settings
        self._policy = _quick(policy)
        self._clock = clock
        self._rng = rng
        self._put_off_until = 0.0
        self._preparing: threading.Thread | None = None
        #: Some task waits for slots: what becomes free is worth a look.
        self.waits = False

    def step(self) -> bool:
        """Give slots to the tasks that can have theirs now; return whether there is something to tell agents."""
        with self._reading() as tx:
            view = task_view(tx, self._catalogue, self._clock())
        self.waits = view is not None
        if view is None:
            return False
        began_s = time.monotonic()
        choices = choose(view, self._settings.task_patience_s, self._solve)
        decided_s = time.monotonic() - began_s
        return self._commit(view, choices, decided_s) if choices else False

    def _solve(self, problem: TaskProblem) -> Solution | None:
        """Return the policy's schedule, without bounds, which nobody looks at, where it can do without them.

        None while it has failed, or what it needs is being compiled: that may take half a minute, once on a machine.
        """
        policy, now_s = self._policy, self._clock()
        if not self._is_prepared() or now_s < self._put_off_until:
            return None
        try:
            if isinstance(policy, ListPolicy):
                found = policy.place(problem, allotted_shapes(problem))
                return found.enclosure, found.begin_s, found.member_begin, found.members
            schedule = policy.decide(problem, None, 0.0, self._rng)
        except Exception:
            self._put_off_until = now_s + PUT_OFF_S
            LOG.exception("task policy %s failed; next try in %.0f s", policy.name, PUT_OFF_S)
            return None
        return schedule.enclosure, schedule.begin_s, schedule.member_begin, schedule.members

    def _is_prepared(self) -> bool:
        """Say whether what the policy needs is compiled, or loaded; the first call has that begin, beside all else."""
        if self._preparing is None:
            prepare = self._policy.prepare if isinstance(self._policy, Preparing) else lambda: None
            self._preparing = threading.Thread(target=prepare, name="prepare-tasks", daemon=True)
            self._preparing.start()
        return not self._preparing.is_alive()

    def _commit(self, view: TaskView, choices: list[Choice], decided_s: float) -> bool:
        with self._transactions() as tx:
            placed = commit_choices(tx, view, choices, self._settings, self._clock())
        for task in placed:
            LOG.info("task %s: gets its %d slots, attempt %d", task.uuid, task.slots, task.attempt)
        LOG.info(
            "of %d tasks that wait %d placed, %d put off, by %s in %.1f ms",
            len(view.tasks),
            len(placed),
            len(choices) - len(placed),
            self._policy.name,
            1000 * decided_s,
        )
        return bool(placed)
