"""The part of tasks in the planning cycle (lattice paper)."""

from collections.abc import Collection, Sequence

import numpy as np

from fpga_pool.core.lattice.listing import Placed
from fpga_pool.core.lattice.starting import planned
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import PolicyState, TaskPolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Decision, Look, Outcome, PolicyFailure
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.pool.task_choosing import choose
from fpga_pool.model.pool.tasks import Choice, TaskView, commit_choices, task_view
from fpga_pool.model.tasks import Task
from fpga_pool.model.transaction import Transaction

#: A policy that fails is not asked again for so long; tasks begin in order of arrival meanwhile.
PUT_OFF_S = 60.0


class TaskFamily:
    """Gives tasks their slots: all that each needs, or none.

    Parameters
    ----------
    catalogue, settings
        The catalogue in force and the limits.
    policy
        Schedules the tasks that wait.

    """

    name = "task"

    def __init__(
        self,
        catalogue: Catalogue,
        settings: PoolSettings,
        policy: TaskPolicy,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._policy = policy
        self._put_off_until_s = 0.0
        #: Some task waits for slots: what becomes free is worth a look.
        self.waits = False

    def snapshot(self, tx: Transaction, now_s: float) -> Look[TaskView] | None:
        """Read the tasks that wait, and what they could get."""
        view = task_view(tx, self._catalogue, now_s)
        self.waits = view is not None
        return None if view is None else Look(view=view, policy=self._policy, now_s=now_s)

    def decide(self, look: Look[TaskView], state: PolicyState, rng: np.random.Generator) -> Decision[Sequence[Choice]]:
        """Choose slots for the tasks that can begin; the policy is asked about those that are patient."""
        failures: list[PolicyFailure] = []

        def solve(problem: TaskProblem) -> TaskSchedule | Placed | None:
            if look.now_s < self._put_off_until_s:
                return None
            try:
                return planned(self._policy, problem, state, rng)
            except Exception as error:
                self._put_off_until_s = look.now_s + PUT_OFF_S
                message = f"task policy {self._policy.name} failed; next try in {PUT_OFF_S:.0f} s"
                failures.append(PolicyFailure(message=message, error=error))
                return None

        choices = choose(look.view, self._settings.task_patience_s, solve)
        return Decision(wanted=choices or None, failures=tuple(failures))

    def commit(self, tx: Transaction, look: Look[TaskView], wanted: Sequence[Choice], now_s: float) -> Outcome:
        """Give tasks their slots."""
        placed = commit_choices(tx, look.view, wanted, self._settings, now_s)
        details = tuple(f"task {task.uuid}: gets its {task.slots} slots, attempt {task.attempt}" for task in placed)
        summary = (
            f"of {len(look.view.tasks)} tasks that wait {len(placed)} placed, {len(wanted) - len(placed)} put off, by"
            f" {self._policy.name}"
        )
        return Outcome(changed=bool(placed), placed=tuple(placed), details=details, summary=summary)

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Task]:
        """Return tasks."""
        return [tx.task(uuid) for uuid in uuids]
