"""Batches in the planning cycle: a waiting batch is placed, or the work in progress is planned again.

`ReplanTrigger` decides when the work in progress differs so much from its plan that the rest is planned again.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.cluster.slowdown import SlowdownModel
from fpga_pool.core.makespan.replan import Replan
from fpga_pool.core.makespan.underway import plan_arriving
from fpga_pool.core.policy import BatchPolicy, PolicyState, Proving, Replanning
from fpga_pool.core.types import BatchPlan, EarlierTransfers
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import CycleSnapshot, Decision, Outcome, PolicyFailure
from fpga_pool.model.objects.pool import Job
from fpga_pool.model.objects.progress import late_s as transfer_late_s
from fpga_pool.model.rules.batch.placing import PlanRequest, require_answer
from fpga_pool.model.rules.batch.planning import (
    Snapshot,
    all_placed,
    batch_problem,
    commit_plan,
    snapshot,
    with_servers,
)
from fpga_pool.model.rules.batch.replanning import ReplanProblem, commit_replan, replan_problem, worth_replanning
from fpga_pool.model.rules.batch.transfers import earlier_transfers, inputs_under_way
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

#: Maximum interval between checks while replanning changes nothing, as a multiple of the minimum interval.
_LONGEST_PAUSE = 8


class ReplanTrigger:
    """Compares the work in progress on one shard with its plan, at intervals.

    Its state only avoids repeated replanning and is not stored with the shard: a new owner of the shard may replan once
    more than needed, based on the stored objects alone.
    """

    def __init__(self, settings: PoolSettings, is_planned: Callable[[str], bool] = lambda _: True) -> None:
        self._settings = settings
        #: Returns whether a batch policy, by name, makes plans; jobs of other policies do not trigger replanning.
        self._is_planned = is_planned
        self._next_at = 0.0
        self._pause_s = settings.replan_late_s
        #: How late jobs were when they last triggered replanning.
        self._known_late_s: dict[str, float] = {}
        #: Slots that were idle at the last check.
        self._idle: frozenset[str] = frozenset()

    def reason(self, tx: Transaction, now_s: float) -> str:
        """Return what differs from the plan, human-readable; "" = nothing new, or the next check is not due yet."""
        if now_s < self._next_at:
            return ""
        self._next_at = now_s + self._pause_s
        if not any(map(self._is_planned, tx.policies_at_work())):
            return ""
        return self._lateness(tx, now_s) or self._idleness(tx, now_s)

    def answered(self, *, changed: bool) -> None:
        """Record whether the replanning that was triggered has changed anything; if not, check less often."""
        shortest_s = self._settings.replan_late_s
        self._pause_s = shortest_s if changed else min(2 * self._pause_s, _LONGEST_PAUSE * shortest_s)

    def _lateness(self, tx: Transaction, now_s: float) -> str:
        """Return a message if jobs or their inputs are newly late, or twice as late as when they last triggered."""
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
        """Return a message if slots have become idle while others have work beyond twice the replan horizon."""
        backlogs = tx.backlogs()
        if max((backlog.free_at for backlog in backlogs), default=0.0) - now_s <= 2 * self._settings.replan_horizon_s:
            self._idle = frozenset()
            return ""
        idle = frozenset(slot.name for slot in tx.slots()) - {backlog.slot for backlog in backlogs}
        new, self._idle = idle - self._idle, idle
        return f"{len(new)} slots are idle while others have work" if new else ""


def _input_late_s(job: Job) -> float:
    """Return by how much an input was behind its plan when its responder reported it."""
    if not job.transfer or job.moved_bytes is None or job.moved_at is None or job.dispatched_at is None:
        return 0.0
    return transfer_late_s(job.transfer, job.input_bytes, job.moved_bytes, job.moved_at - job.dispatched_at)


#: A batch whose policy fails is retried after this time, so that it does not block the others meanwhile.
PUT_OFF_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """The input of a decision of a batch policy."""

    snap: Snapshot
    #: Name of the policy: the one requested by the batch, or the default.
    policy: str
    #: The work in progress, if the policy can replan it and this may be worthwhile; None otherwise.
    underway: ReplanProblem | None
    #: Transfers that are already planned on the network.
    transfers: EarlierTransfers
    #: Human-readable difference from the plan that triggered the cycle; "" = a batch waits.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """A plan for a batch behind the jobs in progress, sending in the bandwidth their transfers leave, or after them."""

    request: PlanRequest
    plan: BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPlan:
    """A new plan for work that has not begun, together with the waiting batch, if any."""

    asked: ReplanProblem
    found: Replan


class BatchFamily:
    """Places pending jobs, the batch of the lowest `rank` first, and replans jobs that have not begun.

    Small batches that wait at the same time are planned together, as fairness groups in the order of their rank.

    Replanning requires a policy with `replan` and work in progress. It happens when a batch arrives, a slot or a host
    is lost, or reality differs from the plan.

    Parameters
    ----------
    catalogue, settings
        The catalogue in force and the limits.
    policies
        Returns a policy by its name.
    default_policy
        Name of the policy of batches that do not name one.
    is_planned
        Returns whether a batch policy, by name, makes plans; other batches are left to other families.
    slowdown
        Returns the model of how functions slow each other down on a card; None = there is no model.

    """

    name = "batch"
    waits = False

    def __init__(
        self,
        catalogue: Catalogue,
        settings: PoolSettings,
        policies: Callable[[str], BatchPolicy],
        default_policy: str,
        is_planned: Callable[[str], bool],
        slowdown: Callable[[], SlowdownModel | None] = lambda: None,
    ) -> None:
        self._slowdown = slowdown
        self.catalogue = catalogue
        self._settings = settings
        self._policies = policies
        self._default_policy = default_policy
        self._is_planned = is_planned
        self._replan_trigger = ReplanTrigger(settings, is_planned)
        #: Time of the next try of each batch whose policy failed.
        self._put_off: dict[str, float] = {}
        #: Until this time batches are planned separately, because the policy failed for several batches together.
        self._apart_until_s = -math.inf

    @property
    def replans(self) -> bool:
        """Whether plans of the default policy may be changed while they are being executed."""
        return self._may_change(self._default_policy)

    def snapshot(self, tx: Transaction, now_s: float) -> CycleSnapshot[BatchView] | None:
        """Read the first pending batch, or, if none waits, the work in progress if it differs from the plan."""
        self._put_off = {uuid: until for uuid, until in self._put_off.items() if now_s < until}
        # Time 0 of the plan is when agents and clients have received it.
        begin_s = now_s + self._settings.dispatch_lead_s
        snap = snapshot(
            tx, self.catalogue, self._settings, begin_s, self._put_off, self._is_planned,
            lambda name: now_s >= self._apart_until_s and self._may_join(name), self._slowdown(),
        )  # fmt: skip
        reason = "" if snap is not None else self._replan_trigger.reason(tx, now_s)
        if reason and self.replans:
            snap = all_placed(tx, self.catalogue, self._settings, begin_s, self._default_policy)
        if snap is None:
            return None
        name = snap.policy or self._default_policy
        policy = self._policies(name)
        underway, transfers = None, EarlierTransfers()
        if isinstance(policy, Replanning) and (reason or worth_replanning(snap.view, self._settings)):
            underway = replan_problem(tx, snap, self._settings, begin_s, self._may_change, late=bool(reason))
        if underway is not None:
            transfers = underway.transfers
        elif snap.jobs:
            under_way = inputs_under_way(tx, snap, now_s, begin_s)
            snap = with_servers(tx, snap, under_way)
            transfers = earlier_transfers(under_way, snap.view, now_s, begin_s)
        view = BatchView(snap=snap, policy=name, underway=underway, transfers=transfers, reason=reason)
        return CycleSnapshot(view=view, policy=policy, now_s=now_s)

    def _may_change(self, name: str) -> bool:
        """Return whether plans of a policy, by its name, may be changed while they are being executed."""
        name = name or self._default_policy
        return self._is_planned(name) and isinstance(self._policies(name), Replanning)

    def _may_join(self, name: str) -> bool:
        """Return whether a policy, by its name, may plan several batches at once; a `Proving` policy may not."""
        return not isinstance(self._policies(name or self._default_policy), Proving)

    def decide(
        self, snapshot: CycleSnapshot[BatchView], state: PolicyState, rng: np.random.Generator
    ) -> Decision[NewPlan | ChangedPlan]:
        """Replan the work in progress with the batch; if that is impossible or does not pay, plan the batch alone."""
        view, failures = snapshot.view, []
        if view.underway is not None and isinstance(snapshot.policy, Replanning):
            found = self._replan(snapshot.policy, view, view.underway, state, rng)
            if isinstance(found, ChangedPlan):
                return Decision(wanted=found)
            if found is not None:
                failures.append(found)
            if view.reason:
                self._replan_trigger.answered(changed=False)
        if not view.snap.jobs:
            return Decision(failures=tuple(failures))
        planned = self._plan(snapshot, state, rng)
        if isinstance(planned, NewPlan):
            return Decision(wanted=planned, failures=tuple(failures))
        return Decision(failures=(*failures, planned), again=True)

    def _replan(
        self, policy: Replanning, view: BatchView, asked: ReplanProblem, state: PolicyState, rng: np.random.Generator
    ) -> ChangedPlan | PolicyFailure | None:
        try:
            found = policy.replan(asked.underway, state, rng)
            if found is None:
                return None
            require_answer(asked.request, found.plan)
        except Exception as error:
            message = f"{_occasion(view)}: policy {view.policy} failed to replan around jobs in progress"
            return PolicyFailure(message=message, error=error)
        return ChangedPlan(asked=asked, found=found)

    def _plan(
        self, snapshot: CycleSnapshot[BatchView], state: PolicyState, rng: np.random.Generator
    ) -> NewPlan | PolicyFailure:
        try:
            request = batch_problem(snapshot.view.snap)
            plan = plan_arriving(snapshot.policy, request.problem, snapshot.view.transfers, state, rng)
            require_answer(request, plan)
        except Exception as error:
            jobs, again_s = snapshot.view.snap.jobs, snapshot.now_s + PUT_OFF_S
            message = f"{_batches(jobs)}: policy {snapshot.view.policy} failed"
            if jobs[-1].batch_uuid != jobs[0].batch_uuid:
                self._apart_until_s = again_s
                return PolicyFailure(message=f"{message}; its batches are planned separately", error=error)
            self._put_off[jobs[0].batch_uuid] = again_s
            return PolicyFailure(message=f"{message}; next try in {PUT_OFF_S:.0f} s", error=error)
        return NewPlan(request=request, plan=plan)

    def commit(
        self, tx: Transaction, snapshot: CycleSnapshot[BatchView], wanted: NewPlan | ChangedPlan, now_s: float
    ) -> Outcome:
        """Give each job the place and times of the plan, as far as this is still possible."""
        if isinstance(wanted, NewPlan):
            return self._commit_plan(tx, snapshot.view, wanted, now_s)
        return self._commit_replan(tx, snapshot.view, wanted, now_s)

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Job]:
        """Return the jobs with these uuids that exist."""
        return tx.jobs(uuids)

    def _commit_plan(self, tx: Transaction, view: BatchView, wanted: NewPlan, now_s: float) -> Outcome:
        plan, jobs = wanted.plan, wanted.request.jobs
        placed = commit_plan(tx, wanted.request, plan, self._settings, now_s)
        summary = (
            f"{_batches(jobs)}: {len(placed)} of {len(jobs)} jobs placed on"
            f" {len({job.slot for job in placed})} slots by {view.policy}; makespan {plan.makespan_s:.3f} s, bound"
            f" {plan.lower_bound_s:.3f} s"
        )
        again = bool(placed) and (view.snap.others or len(placed) < len(jobs))
        return Outcome(changed=bool(placed), again=again, placed=tuple(placed), summary=summary)

    def _commit_replan(self, tx: Transaction, view: BatchView, wanted: ChangedPlan, now_s: float) -> Outcome:
        found = wanted.found
        changes = commit_replan(tx, wanted.asked, found, self._settings, now_s)
        changed = bool(changes.placed or changes.moved or changes.retimed)
        if view.reason:
            self._replan_trigger.answered(changed=changed)
        summary = (
            f"{_occasion(view)}: of {len(wanted.asked.jobs)} jobs not yet computing {len(changes.placed)} placed,"
            f" {len(changes.moved)} moved, {len(changes.retimed)} retimed by {view.policy} ({found.method}); all are"
            f" complete in {found.plan.makespan_s:.3f} s, bound {found.plan.lower_bound_s:.3f} s"
        )
        return Outcome(changed=changed, again=changed, placed=(*changes.placed, *changes.moved), summary=summary)


def _occasion(view: BatchView) -> str:
    return view.reason or f"{_batches(view.snap.jobs)} arrived or lost slots"


def _batches(jobs: Sequence[Job]) -> str:
    """Return the batches of these jobs, in words."""
    names = list(dict.fromkeys(job.batch_uuid for job in jobs))
    return f"batch {names[0]}" if len(names) == 1 else f"batches {', '.join(names)}"
