"""One planning cycle: snapshot, decide, commit."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from fpga_pool.core.policy import BatchPolicy, PreparingLater, Replanning, Sparing
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.pool.lookout import Lookout
from fpga_pool.model.pool.placing import require_answer
from fpga_pool.model.pool.planning import (
    Snapshot,
    all_placed,
    batch_problem,
    commit_plan,
    snapshot,
)
from fpga_pool.model.pool.replanning import Prospect, commit_replan, prospect, worth_replanning
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: A batch that its policy cannot plan holds up the others only for a moment, and is tried again after a while.
PUT_OFF_S = 60.0

Transactions = Callable[[], AbstractContextManager[Transaction]]


class Planner:
    """Gives pending jobs their places, one batch at a time, oldest first; and others to those that have not begun.

    The second where the policy can (`replan`) and there is work under way: when a batch arrives, a slot or a host is
    lost, or reality differs from the plan.
    """

    def __init__(
        self,
        reading: Transactions,
        transactions: Transactions,
        catalogue: Catalogue,
        settings: PoolSettings,
        policies: Callable[[str], BatchPolicy],
        default_policy: str,
        clock: Clock,
        rng: np.random.Generator,
        planning_share: float,
        is_online: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._reading = reading
        self._transactions = transactions
        self._catalogue = catalogue
        self._settings = settings
        self._policies = policies
        self._default_policy = default_policy
        self._clock = clock
        self._rng = rng
        self._planning_share = planning_share
        #: Says of a policy, by name, that it does not plan: its jobs are others' business (`online`, `tasks`).
        self._is_online = is_online
        self._lookout = Lookout(settings, lambda name: not is_online(name))
        self._preparing: threading.Thread | None = None
        #: Batches whose policy failed, and when each is tried again.
        self._put_off: dict[str, float] = {}

    def plan_next(self) -> bool:
        """Plan the oldest batch that waits, or what is under way; return whether to look for more at once."""
        now_s = self._clock()
        self._put_off = {uuid: until for uuid, until in self._put_off.items() if now_s < until}
        # 1. Snapshot.  The plan's time 0 is `dispatch_lead_s` ahead, when agents and clients know of it.
        begin_s = now_s + self._settings.dispatch_lead_s
        with self._reading() as tx:
            snap = snapshot(
                tx, self._catalogue, self._settings, begin_s, self._put_off, lambda name: not self._is_online(name)
            )
            reason = "" if snap is not None else self._lookout.reason(tx, now_s)
            if snap is None and reason and not self._is_online(self._default_policy):
                snap = all_placed(tx, self._catalogue, begin_s, self._default_policy)
            if snap is None:
                return False
            name = snap.policy or self._default_policy
            policy = self._policy(name)
            asked = self._prospect(tx, snap, policy, begin_s, late=bool(reason))
        # 2. Decide, on data that nobody can change meanwhile.  3. Commit what is still as it was.
        if asked is not None and isinstance(policy, Replanning):
            changed = self._replan(
                asked, policy, name, reason or f"batch {snap.jobs[0].batch_uuid} arrived or lost places"
            )
            if reason:
                self._lookout.answered(changed=bool(changed))
            if changed is not None:
                return changed
        planned = self._plan(snap, policy, name, now_s) if snap.jobs else False
        self._prepare(policy)
        return planned

    def _policy(self, name: str) -> BatchPolicy:
        """Return a policy that takes no longer than what it plans is worth."""
        policy = self._policies(name)
        if isinstance(policy, PreparingLater):
            policy.put_off_preparing()
        return policy.sparing(self._planning_share) if isinstance(policy, Sparing) else policy

    def _prepare(self, policy: BatchPolicy) -> None:
        """Have a policy made quicker in the background, once it has planned something for which that would matter."""
        if self._preparing is None and isinstance(policy, PreparingLater) and policy.unprepared:
            self._preparing = threading.Thread(target=policy.prepare, name="prepare-policy", daemon=True)
            self._preparing.start()

    def _plan(self, snap: Snapshot, policy: BatchPolicy, name: str, now_s: float) -> bool:
        """Plan one batch behind all that is under way."""
        request, batch_uuid = batch_problem(snap), snap.jobs[0].batch_uuid
        began_s = time.monotonic()
        try:
            plan = policy.decide(request.problem, None, 0.0, self._rng)
            require_answer(request, plan)
        except Exception:
            self._put_off[batch_uuid] = now_s + PUT_OFF_S
            LOG.exception("batch %s: policy %s failed; next try in %.0f s", batch_uuid, name, PUT_OFF_S)
            return True
        decided_s = time.monotonic() - began_s
        with self._transactions() as tx:
            placed = commit_plan(tx, request, plan, self._settings, self._clock())
        LOG.info(
            "batch %s: %d of %d jobs placed on %d slots by %s in %.1f ms; make-span %.3f s, bound %.3f s",
            batch_uuid,
            len(placed),
            len(snap.jobs),
            len({job.slot for job in placed}),
            name,
            1000 * decided_s,
            plan.makespan_s,
            plan.lower_bound_s,
        )
        return bool(placed)

    def _prospect(
        self, tx: Transaction, snap: Snapshot, policy: BatchPolicy, begin_s: float, *, late: bool
    ) -> Prospect | None:
        """Return what is under way, where the policy can plan around it and it is worth a look."""
        if not isinstance(policy, Replanning) or not (late or worth_replanning(snap.view, self._settings)):
            return None

        def may_move(name: str) -> bool:
            name = name or self._default_policy
            return not self._is_online(name) and isinstance(self._policies(name), Replanning)

        return prospect(tx, snap, self._settings, begin_s, may_move, late=late)

    def _replan(self, asked: Prospect, policy: Replanning, name: str, reason: str) -> bool | None:
        """Plan anew what has not begun; return whether anything has changed, None if it cannot be done or not pay."""
        began_s = time.monotonic()
        try:
            found = policy.replan(asked.underway, self._rng)
            if found is None:
                return None
            require_answer(asked.request, found.plan)
        except Exception:
            LOG.exception("%s: policy %s failed to plan around what is under way", reason, name)
            return None
        decided_s = time.monotonic() - began_s
        with self._transactions() as tx:
            changes = commit_replan(tx, asked, found, self._settings, self._clock())
        LOG.info(
            "%s: of %d jobs that do not compute yet %d placed, %d moved, %d retimed by %s (%s) in %.1f ms; all are"
            " complete in %.3f s, bound %.3f s",
            reason,
            len(asked.jobs),
            len(changes.placed),
            len(changes.moved),
            len(changes.retimed),
            name,
            found.method,
            1000 * decided_s,
            found.plan.makespan_s,
            found.plan.lower_bound_s,
        )
        return bool(changes.placed or changes.moved or changes.retimed)
