"""Gangs in the planning cycle (two-tier paper)."""

from collections.abc import Collection, Sequence

import numpy as np

from fpga_pool.core.gangs.gangs import Move
from fpga_pool.core.policy import GangPolicy, PolicyState
from fpga_pool.model.cycle import CycleSnapshot, Decision, Outcome
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.rules.gang.decisions import (
    GangView,
    Seen,
    commit_gang_moves,
    decided_moves,
    end_trials,
    gang_view,
    remembered,
)
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction


class GangFamily:
    """Gives gangs their processors, and moves them to the foreground, as the policy decides."""

    name = "gang"
    waits = False

    def __init__(self, settings: PoolSettings, policy: GangPolicy) -> None:
        self._settings = settings
        self._policy = policy
        #: State at the policy's last decision; None = unknown, so that the policy considers everything again.
        self._seen: Seen | None = None

    def snapshot(self, tx: Transaction, now_s: float) -> CycleSnapshot[GangView] | None:
        """Read the open gangs and the processors."""
        view = gang_view(tx, self._settings, self._policy, now_s, self._seen)
        if view is None:
            self._seen = None
            return None
        return CycleSnapshot(view=view, policy=self._policy, now_s=now_s)

    def decide(
        self, snapshot: CycleSnapshot[GangView], state: PolicyState, rng: np.random.Generator
    ) -> Decision[Sequence[Move]]:
        """Return all moves that the policy makes now; none if trials are over, so that these are ended first."""
        if snapshot.view.trials_over:
            return Decision(wanted=(), again=True)
        moves = decided_moves(snapshot.view, lambda tiers: self._policy.decide(tiers, state, snapshot.now_s, rng))
        if not moves:
            self._seen = snapshot.view.seen()
        return Decision(wanted=moves or None)

    def commit(
        self, tx: Transaction, snapshot: CycleSnapshot[GangView], wanted: Sequence[Move], now_s: float
    ) -> Outcome:
        """Make the moves in order, up to the first that is not possible any more; without moves, end trials."""
        if not wanted:
            over = end_trials(tx, snapshot.now_s)
            return Outcome(changed=bool(over), details=tuple(f"gang {gang.uuid}: its trial is over" for gang in over))
        self._seen = None  # in case the commit fails
        moved = commit_gang_moves(tx, snapshot.view, wanted, self._settings)
        self._seen = remembered(snapshot.view, wanted, moved)
        details = tuple(
            f"gang {gang.uuid}: {move.how.value} on {gang.processes} processors: {gang.state}"
            for gang, move in zip(moved, wanted, strict=False)
        )
        summary = (
            f"of {len(snapshot.view.gangs)} gangs {len(moved)} moved, {len(wanted) - len(moved)} postponed, by"
            f" {self._policy.name}"
        )
        return Outcome(changed=bool(moved), placed=tuple(moved), details=details, summary=summary)

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Gang]:
        """Return the gangs with these uuids."""
        return [tx.gang(uuid) for uuid in uuids]
