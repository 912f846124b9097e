"""What a scheduling policy is: one small interface, five groups, decisions as data.

A policy is named by an entry point in one of the groups of `GROUPS`.  It never sees anything mutable: it gets a
view, its own state (plain data that can be stored), the time and a random generator, and returns a decision.
A shell (service or simulator) commits the decision or drops it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fpga_pool.core.benefit.moves import Move as OnlineMove
from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.core.gangs.gangs import Move as GangMove
from fpga_pool.core.gangs.tiers import Tiers
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, PoolView

#: Entry-point group of each family of policies.
GROUPS: Mapping[str, str] = {
    name: f"fpga_pool.policies.{name}" for name in ("batch", "online", "gang", "task", "cluster")
}

#: Plain data (JSON types) that a policy remembers between decisions; None for those that remember nothing.
PolicyState = Mapping[str, Any] | None

ViewT_contra = TypeVar("ViewT_contra", contravariant=True)
DecisionT_co = TypeVar("DecisionT_co", covariant=True)
EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Policy(Protocol[ViewT_contra, DecisionT_co]):
    """A scheduling algorithm behind the common interface."""

    #: The entry point's name.
    name: str

    def supports(self, view: ViewT_contra) -> bool:
        """Say whether the policy applies to this view."""
        ...

    def decide(self, view: ViewT_contra, state: PolicyState, now_s: float, rng: np.random.Generator) -> DecisionT_co:
        """Return the decision for this view; deterministic for the same arguments."""
        ...


class LearningPolicy(Policy[ViewT_contra, DecisionT_co], Protocol[ViewT_contra, DecisionT_co, EventT_contra]):
    """A policy that learns or remembers: it folds what happened into its state."""

    def observe(self, event: EventT_contra, state: PolicyState) -> PolicyState:
        """Return the state after `event`."""
        ...


# Batches (paper 000) ------------------------------------------------------------------------------------------

#: A whole batch at once: jobs to accelerators, order, transfer rates.
BatchPolicy = Policy[BatchProblem, BatchPlan]


# Online jobs (paper 003) --------------------------------------------------------------------------------------

#: What waits, runs and loads, to the next move; asked again after each move, until there is nothing to do.  The view is
#: kept up to date by the shell, because a picture of thousands of slots for each arrival would cost more than all
#: decisions on it; policies only read it, and remember nothing.
OnlinePolicy = Policy[Occupancy, OnlineMove | None]


# Gangs on two tiers (paper 002) -------------------------------------------------------------------------------


class GangPolicy(Policy[Tiers, Iterator[GangMove]], Protocol):
    """Who waits and runs on both tiers, to the moves to make now.

    Each move is applied to the view before the next is asked for; the view is kept up to date by the shell, and
    policies only read it.
    """

    @property
    def patience(self) -> float:
        """Return how many times its estimate a gang waits for its turn: what the view is made with."""
        ...

    @property
    def last_runs(self) -> int:
        """Return how many run times of a user predict the next one: what the view is made with; 0 = estimates hold."""
        ...

    @property
    def trial_s(self) -> float:
        """Return how long a trial is: what the view is made with; 0 = there is none."""
        ...


# Multi-FPGA tasks (paper 004) ---------------------------------------------------------------------------------

#: Tasks and enclosures to a schedule of all of them.
TaskPolicy = Policy[TaskProblem, TaskSchedule]


# Pipelines on a cluster (paper 001) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One subtask to place, and the features of every place it could go to."""

    pool: PoolView
    subtask: str
    #: (P, K) one row of features per candidate place.
    features: Floats
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDecision:
    """The chosen place (an index of the view) and the value the policy gave it."""

    place: int
    value: float


ClusterPolicy = LearningPolicy[ClusterView, ClusterDecision, Any]
