"""Tasks in the planning cycle (lattice paper): which of them get which slots now.

The rules are those of `core.lattice.starting`, applied to the slots of a shard.  If no enclosure has a place for a
task, or the policy cannot be used at the moment, tasks get slots in order of arrival instead.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from fpga_pool.core.lattice.listing import Placed
from fpga_pool.core.lattice.starting import Begun, Starting, planned
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import PolicyState, TaskPolicy
from fpga_pool.core.types import Ints, floats
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import CycleSnapshot, Decision, Outcome, PolicyFailure
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.candidates import (
    EarliestStart,
    Solve,
    choose_slots,
    enclosures_of,
    grouped,
    in_path_order,
    problem_of,
)
from fpga_pool.model.rules.task.decisions import Choice, TaskView, commit_choices, quickest, task_view
from fpga_pool.model.transaction import Transaction


def choose(view: TaskView, patience_s: float, solve: Solve) -> list[Choice]:
    """Return the tasks that get slots now, and these slots.

    Tasks that have waited for `patience_s` come first, in order of arrival. Each gets the slots that are free for it
    soonest, behind the pool's jobs there; slots that other tasks hold are reserved for it.  Of the other tasks, those
    begin that the policy's schedule (`solve`) begins now. Without a schedule, they begin in order of arrival while
    slots are available.
    """
    choosing = _Choosing(view)
    impatient = [task for task in view.tasks if task.created_at + patience_s <= view.now_s]
    for task in impatient:
        if choosing.nothing_is_left:
            break
        choosing.reserve(task)
    for task in choosing.begin(view.tasks[len(impatient) :], solve):
        choosing.begin_somewhere(task)
    return choosing.choices


class _Group:
    """Tasks whose functions fit the same slots, and these slots as enclosures."""

    def __init__(self, tasks: Sequence[Task], choosing: "_Choosing") -> None:
        view = choosing.view
        self.tasks = tasks
        self._boxes = enclosures_of(view.candidates[tasks[0].function])
        slots = [slot for box in self._boxes for slot in box.members]
        self._names = [slot.name if slot is not None else "" for slot in slots]
        self._number = {name: number for number, name in enumerate(self._names) if name}
        self._problem = problem_of(tasks, self._boxes, view.shapes, max(view.load_s[task.uuid] for task in tasks))
        self.starting = Starting(
            self._problem,
            range(len(tasks)),
            there=np.array([bool(name) for name in self._names]),
            ready_s=floats([view.ready_s.get(name, 0.0) for name in self._names]),
            loaded=self._problem.loaded,
            takeable=np.array([bool(name) and name not in view.held for name in self._names]),
            may_begin=lambda row, fpgas: choosing.leaves_places(tasks[row], self.named(fpgas)),
        )
        #: Whether some slot is free; otherwise no task can begin.
        self.any_free = self.starting.any_free
        self.row = {tasks[row].uuid: row for row in self.starting.tasks}

    def named(self, fpgas: Ints) -> list[str]:
        """Return the names of slots by their numbers (n,)."""
        return [self._names[fpga] for fpga in fpgas.tolist()]

    def choice(self, begun: Begun) -> Choice:
        """Return a task that begins and its slots, in path order, as a choice."""
        task, box = self.tasks[begun.task], self._boxes[begun.enclosure]
        path = in_path_order(begun.members.tolist(), box)
        slots = tuple(slot.name for place in path if (slot := box.members[place]) is not None)
        work_s = float(self._problem.shape_seconds[begun.shape])
        return Choice(task=task, slots=slots, wait_s=begun.wait_s, work_s=work_s)

    def occupy(self, names: Iterable[str], until_s: float) -> None:
        """Mark slots that are assigned to other work as free later."""
        mine = [self._number[name] for name in names if name in self._number]
        self.starting.occupy(np.array(mine, np.int64), until_s)


class _Choosing:
    """Keeps track of the slots and tasks that are left while tasks get their slots."""

    def __init__(self, view: TaskView) -> None:
        self.view = view
        self._earliest = EarliestStart(view.candidates, view.ready_s)
        self._idle = set(view.idle)
        self._taken = set(view.held)
        self._groups = [_Group(tasks, self) for tasks in grouped(view.tasks, view.candidates)]
        #: The group of each task for which its enclosures have a place.
        self._group_of = {uuid: group for group in self._groups for uuid in group.row}
        self.choices: list[Choice] = []

    @property
    def nothing_is_left(self) -> bool:
        """Whether every slot is held by, or reserved for, a task."""
        return self._taken.issuperset(self.view.ready_s)

    def reserve(self, task: Task) -> None:
        """Give a task the slots that are free for it soonest, or reserve them until the tasks there have ended."""
        group = self._group_of.get(task.uuid)
        if group is None:
            self._reserve_somewhere(task)
            return
        begun, begins = group.starting.reserve(group.row[task.uuid])
        if begun is None:
            return
        choice = group.choice(begun)
        if begins:
            self.choices.append(choice)
        self._take(choice.slots, begun.end_s, group)

    def begin(self, tasks: Sequence[Task], solve: Solve) -> list[Task]:
        """Begin the tasks that the schedules begin now; return the tasks for which there is no schedule."""
        unscheduled = {task.uuid for task in tasks} - self._group_of.keys()
        for group in self._groups:
            mine = {group.row[task.uuid] for task in tasks if self._group_of.get(task.uuid) is group}
            begun = group.starting.begin(mine, solve) if group.any_free else []
            if begun is None:
                unscheduled |= {group.tasks[row].uuid for row in mine}
            for each in begun or ():
                choice = group.choice(each)
                self.choices.append(choice)
                self._take(choice.slots, each.end_s, group)
        return [task for task in tasks if task.uuid in unscheduled]

    def begin_somewhere(self, task: Task) -> None:
        """Give a task idle slots in the fastest of its shapes for which enough are idle, if any."""
        for count, work_s in sorted(self.view.shapes[task.uuid], key=lambda shape: (shape[1], shape[0])):
            candidates = self.view.candidates[task.function]
            found = (choose_slots(on_host, task.topology, count, self._idle) for on_host in candidates)
            slots = next((slots for slots in found if slots is not None), None)
            if slots is not None:
                if self.leaves_places(task, slots):
                    self.choices.append(Choice(task=task, slots=slots, wait_s=0.0, work_s=work_s))
                    self._take(slots, self.view.load_s[task.uuid] + work_s)
                return

    def leaves_places(self, task: Task, slots: Collection[str]) -> bool:
        """Return whether every older pending batch still has a slot left if a task takes these slots."""
        for work in self.view.older:
            concerned = work.created_at <= task.created_at and not work.fitting.isdisjoint(slots)
            if concerned and work.fitting <= self._taken.union(slots):
                return False
        return True

    def _reserve_somewhere(self, task: Task) -> None:
        count, work_s = quickest(self.view.shapes[task.uuid])
        found = self._earliest.find(task.function, task.topology, count)
        if found is None:
            return
        wait_s, slots = found
        if self._taken.isdisjoint(slots):
            if not self.leaves_places(task, slots):
                return
            self.choices.append(Choice(task=task, slots=slots, wait_s=wait_s, work_s=work_s))
        self._take(slots, wait_s + self.view.load_s[task.uuid] + work_s)

    def _take(self, slots: Collection[str], until_s: float, group: _Group | None = None) -> None:
        """Mark slots as held by or reserved for a task; the task's `group` has already recorded this."""
        self._idle.difference_update(slots)
        self._taken.update(slots)
        self._earliest.take(slots, until_s)
        for other in self._groups:
            if other is not group:
                other.occupy(slots, until_s)


#: A policy that has failed is not used again for this time; meanwhile tasks begin in order of arrival.
PUT_OFF_S = 60.0


class TaskFamily:
    """Gives tasks their slots: all that each needs, or none.

    Parameters
    ----------
    catalogue, settings
        The catalogue in force and the limits.
    policy
        Schedules the waiting tasks.

    """

    name = "task"

    def __init__(
        self,
        catalogue: Catalogue,
        settings: PoolSettings,
        policy: TaskPolicy,
    ) -> None:
        self.catalogue = catalogue
        self._settings = settings
        self._policy = policy
        self._put_off_until_s = 0.0
        #: Whether a task waits for slots, so that a slot that becomes free is worth another cycle.
        self.waits = False

    def snapshot(self, tx: Transaction, now_s: float) -> CycleSnapshot[TaskView] | None:
        """Read the waiting tasks, and the slots that they could get."""
        view = task_view(tx, self.catalogue, now_s)
        self.waits = view is not None
        return None if view is None else CycleSnapshot(view=view, policy=self._policy, now_s=now_s)

    def decide(
        self, snapshot: CycleSnapshot[TaskView], state: PolicyState, rng: np.random.Generator
    ) -> Decision[Sequence[Choice]]:
        """Choose slots for the tasks that can begin; the policy schedules those that have not waited too long."""
        failures: list[PolicyFailure] = []

        def solve(problem: TaskProblem) -> TaskSchedule | Placed | None:
            if snapshot.now_s < self._put_off_until_s:
                return None
            try:
                return planned(self._policy, problem, state, rng)
            except Exception as error:
                self._put_off_until_s = snapshot.now_s + PUT_OFF_S
                message = f"task policy {self._policy.name} failed; next try in {PUT_OFF_S:.0f} s"
                failures.append(PolicyFailure(message=message, error=error))
                return None

        choices = choose(snapshot.view, self._settings.task_patience_s, solve)
        return Decision(wanted=choices or None, failures=tuple(failures))

    def commit(
        self, tx: Transaction, snapshot: CycleSnapshot[TaskView], wanted: Sequence[Choice], now_s: float
    ) -> Outcome:
        """Give the tasks their chosen slots, as far as this is still possible."""
        placed = commit_choices(tx, snapshot.view, wanted, self._settings, now_s)
        details = tuple(f"task {task.uuid}: placed on {task.slots} slots, attempt {task.attempt}" for task in placed)
        summary = (
            f"of {len(snapshot.view.tasks)} waiting tasks {len(placed)} placed, {len(wanted) - len(placed)} postponed, "
            f"by {self._policy.name}"
        )
        return Outcome(changed=bool(placed), placed=tuple(placed), details=details, summary=summary)

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Task]:
        """Return the tasks with these uuids."""
        return [tx.task(uuid) for uuid in uuids]
