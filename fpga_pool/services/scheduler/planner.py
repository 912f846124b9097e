"""One planning cycle: snapshot, decide, commit."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from fpga_pool.core.policy import BatchPolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.pool.planning import batch_problem, commit_plan, require_answer, snapshot
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: A batch that its policy cannot plan holds up the others only for a moment, and is tried again after a while.
PUT_OFF_S = 60.0

Transactions = Callable[[], AbstractContextManager[Transaction]]


class Planner:
    """Gives pending jobs their places, one batch at a time, oldest first."""

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
    ) -> None:
        self._reading = reading
        self._transactions = transactions
        self._catalogue = catalogue
        self._settings = settings
        self._policies = policies
        self._default_policy = default_policy
        self._clock = clock
        self._rng = rng
        #: Batches whose policy failed, and when each is tried again.
        self._put_off: dict[str, float] = {}

    def plan_next(self) -> bool:
        """Plan the oldest batch that waits; return whether to look for more at once."""
        now_s = self._clock()
        self._put_off = {uuid: until for uuid, until in self._put_off.items() if now_s < until}
        # 1. Snapshot.  The plan's time 0 is `dispatch_lead_s` ahead, when agents and clients know of it.
        with self._reading() as tx:
            snap = snapshot(tx, self._catalogue, self._settings, now_s + self._settings.dispatch_lead_s, self._put_off)
        if snap is None:
            return False
        # 2. Decide, on data that nobody can change meanwhile.
        request = batch_problem(snap)
        policy_name = snap.policy or self._default_policy
        began_s = time.monotonic()
        try:
            plan = self._policies(policy_name).decide(request.problem, None, 0.0, self._rng)
            require_answer(request, plan)
        except Exception:
            batch_uuid = snap.jobs[0].batch_uuid
            self._put_off[batch_uuid] = now_s + PUT_OFF_S
            LOG.exception("batch %s: policy %s failed; next try in %.0f s", batch_uuid, policy_name, PUT_OFF_S)
            return True
        decided_s = time.monotonic() - began_s
        # 3. Commit what is still as it was.
        with self._transactions() as tx:
            placed = commit_plan(tx, request, plan, self._settings, self._clock())
        LOG.info(
            "batch %s: %d of %d jobs placed on %d slots by %s in %.1f ms; make-span %.3f s, bound %.3f s",
            snap.jobs[0].batch_uuid,
            len(placed),
            len(snap.jobs),
            len({job.slot for job in placed}),
            policy_name,
            1000 * decided_s,
            plan.makespan_s,
            plan.lower_bound_s,
        )
        return bool(placed)
