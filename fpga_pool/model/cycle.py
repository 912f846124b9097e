"""The planning cycle of a shard: snapshot, decide, commit, dispatch; the same for every family of work.

A family (batches, online jobs, gangs, tasks) says what its part of each step is, see `model.pool.families`.  The
scheduler service runs the cycle of each family in a thread of its own, the simulator runs all of them in simulated
time.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fpga_pool.core.policy import Policy
from fpga_pool.model.transaction import Transaction

#: A family whose policy fails is not looked at again for so long, unless the family itself knows better.
RETRY_S = 5.0

Transactions = Callable[[], AbstractContextManager[Transaction]]
ViewT = TypeVar("ViewT")
WantedT = TypeVar("WantedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[ViewT]):
    """What a family has read of the shard, and the policy that decides on it."""

    view: ViewT
    policy: Policy[Any, Any]
    #: When it was read, UTC seconds.
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFailure:
    """A policy has raised an error; the shard goes on without its decision."""

    #: What could not be decided, by which policy, and what follows.
    message: str
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[WantedT]):
    """What a family wants to be committed."""

    #: None = nothing.
    wanted: WantedT | None = None
    failures: tuple[PolicyFailure, ...] = ()
    #: Other work may wait for a decision, whatever comes of this one.
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a commit has changed."""

    #: There are commands for agents.
    changed: bool = False
    #: Other work may wait for a decision: the next cycle follows at once.
    again: bool = False
    #: Single decisions, and a summary of all; for people.
    details: tuple[str, ...] = ()
    summary: str = ""


class Family(Protocol[ViewT, WantedT]):
    """One family of work on one shard: its part of each step, and what it remembers between cycles."""

    name: str
    #: Some work would have another place if there were one: what becomes free is worth a look at once.
    waits: bool

    def snapshot(self, tx: Transaction, now_s: float) -> Look[ViewT] | None:
        """Read what is to be decided on; None = nothing is."""
        ...

    def decide(self, look: Look[ViewT], rng: np.random.Generator) -> Decision[WantedT]:
        """Ask the policy; no transaction is open."""
        ...

    def commit(self, tx: Transaction, look: Look[ViewT], wanted: WantedT, now_s: float) -> Outcome:
        """Do what is wanted, as far as nothing concerned has changed since the snapshot."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long each step has taken, in seconds of the given timer."""

    snapshot_s: float = 0.0
    decide_s: float = 0.0
    commit_s: float = 0.0
    dispatch_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """What one cycle has done; a cycle that found nothing to decide has only a snapshot's duration."""

    family: str
    #: The policy that was asked; None = none.
    policy: Policy[Any, Any] | None = None
    #: The next cycle is to follow at once.
    again: bool = False
    outcome: Outcome = Outcome()
    failures: tuple[PolicyFailure, ...] = ()
    durations: Durations = Durations()


class Cycle(Generic[ViewT, WantedT]):
    """Runs the steps for one family of work on one shard; used by one thread at a time.

    Parameters
    ----------
    family
        What each step is for this family.
    reading, transactions
        Begin a transaction that reads, and one that changes, the shard.
    dispatch
        Have committed commands delivered to their agents.
    clock
        Returns UTC seconds.
    timer
        Returns seconds since any fixed moment; measures the durations of the steps.
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
        """Run one cycle; errors of the store are raised, those of the policy are part of the result."""
        family, now_s, laps = self.family, self._clock(), [self._timer()]
        if now_s < self._retry_at_s:
            return CycleResult(family=family.name)
        # 1. Snapshot: read all that the decision depends on, in one transaction.
        with self._reading() as tx:
            look = family.snapshot(tx, now_s)
        laps.append(self._timer())
        if look is None:
            return CycleResult(family=family.name, durations=_durations(laps))
        # 2. Decide, on data that nobody can change meanwhile.
        decision = self._decide(look)
        laps.append(self._timer())
        # 3. Commit what is still as it was read, in one transaction together with the commands to agents.
        outcome = Outcome()
        if decision.wanted is not None:
            with self._transactions() as tx:
                outcome = family.commit(tx, look, decision.wanted, self._clock())
        laps.append(self._timer())
        # 4. Dispatch the commands.
        if outcome.changed:
            self._dispatch()
        laps.append(self._timer())
        return CycleResult(
            family=family.name,
            policy=look.policy,
            again=decision.again or outcome.again,
            outcome=outcome,
            failures=decision.failures,
            durations=_durations(laps),
        )

    def _decide(self, look: Look[ViewT]) -> Decision[WantedT]:
        try:
            return self.family.decide(look, self._rng)
        except Exception as error:  # a policy is a plug-in, and may be wrong
            self._retry_at_s = look.now_s + RETRY_S
            message = f"{self.family.name} policy {look.policy.name} failed; next try in {RETRY_S:.0f} s"
            return Decision(failures=(PolicyFailure(message=message, error=error),))


def _durations(laps: list[float]) -> Durations:
    """Return the time between each two laps; steps that were not reached took none."""
    spans = [after - before for before, after in pairwise(laps)]
    return Durations(**dict(zip(("snapshot_s", "decide_s", "commit_s", "dispatch_s"), spans, strict=False)))
