"""The part of batches in the planning cycle: a batch is placed, or what is under way is planned again."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.makespan.arriving import plan_arriving
from fpga_pool.core.makespan.replan import Replan
from fpga_pool.core.policy import BatchPolicy, PolicyState, Replanning
from fpga_pool.core.types import BatchPlan, EarlierTransfers
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Decision, Look, Outcome, PolicyFailure
from fpga_pool.model.objects import Job
from fpga_pool.model.pool.placing import PlanRequest, require_answer
from fpga_pool.model.pool.planning import Snapshot, all_placed, batch_problem, commit_plan, snapshot
from fpga_pool.model.pool.replan_trigger import ReplanTrigger
from fpga_pool.model.pool.replanning import ReplanProblem, commit_replan, replan_problem, worth_replanning
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.pool.transfers import earlier_transfers, inputs_under_way
from fpga_pool.model.transaction import Transaction

#: A batch that its policy cannot plan holds up the others only for a moment, and is tried again after a while.
PUT_OFF_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """What a batch policy is asked."""

    snap: Snapshot
    #: The policy's name, as the batch asked for it.
    policy: str
    #: What is under way, where the policy can plan around it and that is worth a look.
    underway: ReplanProblem | None
    #: What is planned of the network already.
    transfers: EarlierTransfers
    #: What is not as planned, for people; "" = a batch waits.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """A batch is placed behind the jobs under way, in what their transfers leave of the network or after these."""

    request: PlanRequest
    plan: BatchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPlan:
    """What has not begun is planned again, and a batch that waits together with it."""

    asked: ReplanProblem
    found: Replan


class BatchFamily:
    """Gives pending jobs their places, one batch at a time, oldest first; and others to those that have not begun.

    The second where the policy can (`replan`) and there is work under way: when a batch arrives, a slot or a host is
    lost, or reality differs from the plan.

    Parameters
    ----------
    catalogue, settings
        The catalogue in force and the limits.
    policies
        Returns a policy by its name.
    default_policy
        Name of the policy of batches that ask for none.
    is_planned
        Says of a batch's policy, by name, that it plans: other batches are the business of other families.

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
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._policies = policies
        self._default_policy = default_policy
        self._is_planned = is_planned
        self._replan_trigger = ReplanTrigger(settings, is_planned)
        #: Batches whose policy failed, and when each is tried again.
        self._put_off: dict[str, float] = {}

    @property
    def replans(self) -> bool:
        """Whether plans of the default policy may be changed while they are being carried out."""
        return self._may_change(self._default_policy)

    def snapshot(self, tx: Transaction, now_s: float) -> Look[BatchView] | None:
        """Read the oldest batch that waits, or what is under way if that is not as planned."""
        self._put_off = {uuid: until for uuid, until in self._put_off.items() if now_s < until}
        # The plan's time 0 is when agents and clients know of it.
        begin_s = now_s + self._settings.dispatch_lead_s
        snap = snapshot(tx, self._catalogue, self._settings, begin_s, self._put_off, self._is_planned)
        reason = "" if snap is not None else self._replan_trigger.reason(tx, now_s)
        if reason and self.replans:
            snap = all_placed(tx, self._catalogue, self._settings, begin_s, self._default_policy)
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
            transfers = earlier_transfers(inputs_under_way(tx, snap, now_s, begin_s), snap.view, now_s, begin_s)
        view = BatchView(snap=snap, policy=name, underway=underway, transfers=transfers, reason=reason)
        return Look(view=view, policy=policy, now_s=now_s)

    def _may_change(self, name: str) -> bool:
        """Say whether plans of a policy, by its name, may be changed while they are being carried out."""
        name = name or self._default_policy
        return self._is_planned(name) and isinstance(self._policies(name), Replanning)

    def decide(
        self, look: Look[BatchView], state: PolicyState, rng: np.random.Generator
    ) -> Decision[NewPlan | ChangedPlan]:
        """Plan around what is under way; where that is not possible or does not pay, plan the batch alone."""
        view, failures = look.view, []
        if view.underway is not None and isinstance(look.policy, Replanning):
            found = self._replan(look.policy, view, view.underway, state, rng)
            if isinstance(found, ChangedPlan):
                return Decision(wanted=found)
            if found is not None:
                failures.append(found)
            if view.reason:
                self._replan_trigger.answered(changed=False)
        if not view.snap.jobs:
            return Decision(failures=tuple(failures))
        planned = self._plan(look, state, rng)
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
            message = f"{_occasion(view)}: policy {view.policy} failed to plan around what is under way"
            return PolicyFailure(message=message, error=error)
        return ChangedPlan(asked=asked, found=found)

    def _plan(self, look: Look[BatchView], state: PolicyState, rng: np.random.Generator) -> NewPlan | PolicyFailure:
        request = batch_problem(look.view.snap)
        try:
            plan = plan_arriving(look.policy, request.problem, look.view.transfers, state, rng)
            require_answer(request, plan)
        except Exception as error:
            batch_uuid = look.view.snap.jobs[0].batch_uuid
            self._put_off[batch_uuid] = look.now_s + PUT_OFF_S
            message = f"batch {batch_uuid}: policy {look.view.policy} failed; next try in {PUT_OFF_S:.0f} s"
            return PolicyFailure(message=message, error=error)
        return NewPlan(request=request, plan=plan)

    def commit(self, tx: Transaction, look: Look[BatchView], wanted: NewPlan | ChangedPlan, now_s: float) -> Outcome:
        """Give each job the place and the times of the plan, where that is still possible."""
        if isinstance(wanted, NewPlan):
            return self._commit_plan(tx, look.view, wanted, now_s)
        return self._commit_replan(tx, look.view, wanted, now_s)

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Job]:
        """Return jobs."""
        return tx.jobs(uuids)

    def _commit_plan(self, tx: Transaction, view: BatchView, wanted: NewPlan, now_s: float) -> Outcome:
        plan, jobs = wanted.plan, wanted.request.jobs
        placed = commit_plan(tx, wanted.request, plan, self._settings, now_s)
        summary = (
            f"batch {jobs[0].batch_uuid}: {len(placed)} of {len(jobs)} jobs placed on"
            f" {len({job.slot for job in placed})} slots by {view.policy}; makespan {plan.makespan_s:.3f} s, bound"
            f" {plan.lower_bound_s:.3f} s"
        )
        return Outcome(changed=bool(placed), again=bool(placed), placed=tuple(placed), summary=summary)

    def _commit_replan(self, tx: Transaction, view: BatchView, wanted: ChangedPlan, now_s: float) -> Outcome:
        found = wanted.found
        changes = commit_replan(tx, wanted.asked, found, self._settings, now_s)
        changed = bool(changes.placed or changes.moved or changes.retimed)
        if view.reason:
            self._replan_trigger.answered(changed=changed)
        summary = (
            f"{_occasion(view)}: of {len(wanted.asked.jobs)} jobs that do not compute yet {len(changes.placed)} placed,"
            f" {len(changes.moved)} moved, {len(changes.retimed)} retimed by {view.policy} ({found.method}); all are"
            f" complete in {found.plan.makespan_s:.3f} s, bound {found.plan.lower_bound_s:.3f} s"
        )
        return Outcome(changed=changed, again=changed, placed=(*changes.placed, *changes.moved), summary=summary)


def _occasion(view: BatchView) -> str:
    return view.reason or f"batch {view.snap.jobs[0].batch_uuid} arrived or lost places"
