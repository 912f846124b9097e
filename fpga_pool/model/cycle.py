"""The planning cycle of a shard (snapshot, decide, commit, dispatch), common to all families of work.

Each family (batches, online jobs, gangs, tasks) implements its part of each step, see `model.rules.shared.families`.
The scheduler service runs the cycle of each family in its own thread; the simulator runs all of them in simulated
time.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fpga_pool.core.policy import Policy, PolicyState, Remembering
from fpga_pool.model.learning import Learning, Work
from fpga_pool.model.transaction import Transaction

#: Seconds until the next cycle of a family whose policy has failed, unless the family handles the failure itself.
RETRY_S = 5.0

Transactions = Callable[[], AbstractContextManager[Transaction]]
ViewT = TypeVar("ViewT")
WantedT = TypeVar("WantedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSnapshot(Generic[ViewT]):
    """Snapshot of the shard that a family has read, and the policy that decides on it."""

    view: ViewT
    policy: Policy[Any, Any]
    #: Time of the snapshot, UTC seconds.
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFailure:
    """Error raised by a policy; the shard continues without its decision."""

    #: What could not be decided, by which policy, and the consequence.
    message: str
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[WantedT]):
    """Changes that a family wants to commit."""

    #: None = no changes.
    wanted: WantedT | None = None
    failures: tuple[PolicyFailure, ...] = ()
    #: Run the next cycle immediately, whatever the commit changes: other work may wait for a decision.
    again: bool = False

    def explained(self, reason: str) -> str:
        """Return the reason why work would wait, preceded by the failures of policies."""
        return "; ".join(filter(None, (*(failure.message for failure in self.failures), reason)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Changes made by a commit."""

    #: Whether there are commands for agents.
    changed: bool = False
    #: Run the next cycle immediately: other work may wait for a decision.
    again: bool = False
    #: Work that was placed or moved.
    placed: tuple[Work, ...] = ()
    #: Human-readable descriptions of the single decisions, and a summary of all.
    details: tuple[str, ...] = ()
    summary: str = ""


class Family(Protocol[ViewT, WantedT]):
    """One family of work on one shard: its part of each step, and its state between cycles."""

    name: str
    #: Some work waits for a place or a better one: a cycle should follow as soon as capacity becomes free.
    waits: bool

    def snapshot(self, tx: Transaction, now_s: float) -> CycleSnapshot[ViewT] | None:
        """Read the view for the decision; return None if there is nothing to decide."""

    def decide(self, snapshot: CycleSnapshot[ViewT], state: PolicyState, rng: np.random.Generator) -> Decision[WantedT]:
        """Call the policy with its `state`; no transaction is open."""

    def commit(self, tx: Transaction, snapshot: CycleSnapshot[ViewT], wanted: WantedT, now_s: float) -> Outcome:
        """Apply the decision, except to objects that have changed since the snapshot."""

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Work]:
        """Return the existing work of the family among these uuids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Duration of each step, in seconds of the cycle's timer."""

    snapshot_s: float = 0.0
    decide_s: float = 0.0
    commit_s: float = 0.0
    dispatch_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Duration of all steps together."""
        return self.snapshot_s + self.decide_s + self.commit_s + self.dispatch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """Result of one cycle; if there was nothing to decide, it has only the duration of the snapshot."""

    family: str
    #: The policy that was called; None = none.
    policy: Policy[Any, Any] | None = None
    #: Run the next cycle immediately.
    again: bool = False
    outcome: Outcome = Outcome()
    failures: tuple[PolicyFailure, ...] = ()
    durations: Durations = Durations()


class Cycle(Generic[ViewT, WantedT]):
    """Run the steps of the cycle for one family of work on one shard; for use by one thread at a time.

    Parameters
    ----------
    family
        The family's implementation of each step.
    reading, transactions
        Begin a transaction that reads the shard, and one that changes it.
    dispatch
        Trigger the delivery of committed commands to their agents.
    clock
        Returns UTC seconds.
    timer
        Returns seconds since an arbitrary fixed moment; measures the durations of the steps.
    rng
        Random generator of the policies.

    """

    def __init__(
        self,
        family: Family[ViewT, WantedT],
        *,
        reading: Transactions,
        transactions: Transactions,
        dispatch: Callable[[], None],
        clock: Callable[[], float],
        timer: Callable[[], float],
        rng: np.random.Generator,
    ) -> None:
        self.family = family
        self._reading = reading
        self._transactions = transactions
        self._dispatch = dispatch
        self._clock = clock
        self._timer = timer
        self._rng = rng
        self._retry_at_s = 0.0

    def run(self) -> CycleResult:
        """Run one cycle; errors of the store are raised, errors of the policy are part of the result."""
        family, now_s, laps = self.family, self._clock(), [self._timer()]
        if now_s < self._retry_at_s:
            return CycleResult(family=family.name)
        # 1. Snapshot: read everything that the decision depends on, in one transaction.
        snapshot, learning = self._snapshot(now_s)
        laps.append(self._timer())
        if snapshot is None:
            return CycleResult(family=family.name, durations=_durations(laps))
        # 2. Decide on data that cannot change meanwhile.
        decision = self._decide(snapshot, None if learning is None else learning.state)
        laps.append(self._timer())
        # 3. Commit the changes to objects that are still as they were read, in one transaction together with the
        # commands to agents and the new state of the policy.
        outcome = Outcome()
        if decision.wanted is not None or (learning is not None and learning.has_changed):
            with self._transactions() as tx:
                if decision.wanted is not None:
                    outcome = family.commit(tx, snapshot, decision.wanted, self._clock())
                if learning is not None:
                    learning.note_placed(outcome.placed, now_s)
                    learning.save(tx)
        laps.append(self._timer())
        # 4. Dispatch the commands.
        if outcome.changed:
            self._dispatch()
        laps.append(self._timer())
        return CycleResult(
            family=family.name,
            policy=snapshot.policy,
            again=decision.again or outcome.again,
            outcome=outcome,
            failures=(*decision.failures, *self._not_learned(learning)),
            durations=_durations(laps),
        )

    def dry_run(self) -> tuple[CycleSnapshot[ViewT], Decision[WantedT]] | None:
        """Return the snapshot and the decision on it without committing anything; None = there is nothing to decide."""
        snapshot, learning = self._snapshot(self._clock())
        return (
            None
            if snapshot is None
            else (snapshot, self._decide(snapshot, None if learning is None else learning.state))
        )

    def _snapshot(self, now_s: float) -> tuple[CycleSnapshot[ViewT] | None, Learning | None]:
        with self._reading() as tx:
            snapshot = self.family.snapshot(tx, now_s)
            return snapshot, None if snapshot is None else self._learning(tx, snapshot)

    def _learning(self, tx: Transaction, snapshot: CycleSnapshot[ViewT]) -> Learning | None:
        """Return the learning of a policy that has a state, updated by ended work; None for other policies."""
        if not isinstance(snapshot.policy, Remembering):
            return None
        learning = Learning(tx, self.family.name, snapshot.policy)
        learning.note_ends(lambda uuids: self.family.work(tx, uuids), snapshot.now_s)
        return learning

    def _not_learned(self, learning: Learning | None) -> Iterator[PolicyFailure]:
        if learning is not None:
            message = f"{self.family.name} policy {learning.policy} failed to learn from reported events"
            yield from (PolicyFailure(message=message, error=error) for error in learning.errors)

    def _decide(self, snapshot: CycleSnapshot[ViewT], state: PolicyState) -> Decision[WantedT]:
        try:
            return self.family.decide(snapshot, state, self._rng)
        except Exception as error:  # a policy is a plug-in, and may be wrong
            self._retry_at_s = snapshot.now_s + RETRY_S
            message = f"{self.family.name} policy {snapshot.policy.name} failed; next try in {RETRY_S:.0f} s"
            return Decision(failures=(PolicyFailure(message=message, error=error),))


def _durations(laps: list[float]) -> Durations:
    """Return the time between consecutive laps as durations; steps that were not reached have 0."""
    spans = [after - before for before, after in pairwise(laps)]
    return Durations(**dict(zip(("snapshot_s", "decide_s", "commit_s", "dispatch_s"), spans, strict=False)))
