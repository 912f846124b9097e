"""The interface of scheduling policies: five groups, decisions as data, and the abilities that a policy may have.

A policy is named by an entry point in one of the groups of `GROUPS`.  It never changes its view: it receives the
view, its own state (plain data that can be stored), the time and a random generator, and returns a decision.
A shell (service or simulator) commits the decision or drops it.

Optional abilities are separate protocols, below.  A shell tests for one with `isinstance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:  # the planners import this module, and so do agents, which need no numpy
    import numpy as np

    from fpga_pool.core.benefit.occupancy import Occupancy
    from fpga_pool.core.benefit.pool import Move as OnlineMove
    from fpga_pool.core.cluster.nodes import NodePolicy
    from fpga_pool.core.cluster.views import ClusterView
    from fpga_pool.core.gangs.gangs import Move as GangMove
    from fpga_pool.core.gangs.tiers import Tiers
    from fpga_pool.core.integer import Report
    from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
    from fpga_pool.core.makespan.replan import Replan
    from fpga_pool.core.makespan.underway import Underway
    from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats

#: Entry-point group of each family of policies.
GROUPS: Mapping[str, str] = {
    name: f"fpga_pool.policies.{name}" for name in ("batch", "online", "gang", "task", "cluster")
}

#: Plain data (JSON types) that a policy remembers between decisions; None for stateless policies.
PolicyState = Mapping[str, Any] | None

ViewT_contra = TypeVar("ViewT_contra", contravariant=True)
DecisionT_co = TypeVar("DecisionT_co", covariant=True)


@runtime_checkable
class Policy(Protocol[ViewT_contra, DecisionT_co]):
    """A scheduling algorithm behind the common interface."""

    #: The entry point's name.
    name: str

    def decide(self, view: ViewT_contra, state: PolicyState, now_s: float, rng: np.random.Generator) -> DecisionT_co:
        """Return the decision for this view; deterministic for the same policy, arguments and state of `rng`.

        Raises ValueError, with the reason, if the policy does not apply to this view.
        """
        ...


# Batches (makespan paper) -------------------------------------------------------------------------------------

#: Plans a whole batch at once: the accelerator of each job, the order and the transfer rates.
BatchPolicy: TypeAlias = Policy["BatchProblem", "BatchPlan"]


# Online jobs (benefit paper) ----------------------------------------------------------------------------------

#: Returns the next move for the jobs and slots of the view; called again after each move until it returns None.  The
#: shell keeps the view up to date, because building a picture of thousands of slots for each arrival would cost more
#: than all decisions on it.  Policies only read it.
OnlinePolicy: TypeAlias = Policy["Occupancy", "OnlineMove | None"]


# Gangs on two tiers (two-tier paper) --------------------------------------------------------------------------

_OfGangs: TypeAlias = Policy["Tiers", "Iterator[GangMove]"]


@runtime_checkable
class GangPolicy(_OfGangs, Protocol):
    """A policy that yields the moves to make now, given the gangs that wait and run on both tiers.

    The shell keeps the view up to date and applies each move to it before it requests the next one.  Policies only
    read the view.
    """

    @property
    def patience(self) -> float:
        """Return the multiple of its estimate that a gang waits for its turn; a parameter of the view."""
        ...

    @property
    def last_runs(self) -> int:
        """Return how many past run times of a user predict the next; a parameter of the view; 0 = use the estimates."""
        ...

    @property
    def trial_s(self) -> float:
        """Return the duration of a trial in seconds; a parameter of the view; 0 = no trials."""
        ...


# Multi-FPGA tasks (lattice paper) -----------------------------------------------------------------------------

#: Returns a schedule of all tasks on the enclosures.
TaskPolicy: TypeAlias = Policy["TaskProblem", "TaskSchedule"]


# Pipelines on a cluster (learned placement paper) ---------------------------------------------------------------

_OfClusters: TypeAlias = Policy["ClusterView", int | None]


@runtime_checkable
class ClusterPolicy(_OfClusters, Protocol):
    """A policy that returns the node for a task, or None while there is none; the shell keeps the view up to date."""

    #: The policy that decides within each node.
    node: NodePolicy
    #: Whether the shell corrects the estimates in the views by the observed times of subtasks.
    calibrate: bool


# Abilities ----------------------------------------------------------------------------------------------------


@runtime_checkable
class Parametrised(Protocol):
    """A policy class with parameters: its constructor takes an optional `Params` object."""

    #: A frozen dataclass that validates its values; the metadata of each field holds its help text.
    Params: ClassVar[type[Any]]


@runtime_checkable
class Remembering(Protocol):
    """A policy of any family that learns: it folds events into the state that is passed to its next decision."""

    def observe(self, event: Mapping[str, Any], state: PolicyState) -> PolicyState:
        """Return the state after `event`, both plain data; `state` itself is not modified."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A cluster or node policy that learns while it decides."""

    def learner(self, rng: np.random.Generator) -> Self:
        """Return a copy of this policy with separate memory for one run; `rng` draws its initial weights."""
        ...


@runtime_checkable
class Trained(ClusterPolicy, Protocol):
    """A cluster policy with weights, arrays by name; for a learning policy, the weights learned so far."""

    @property
    def weights(self) -> Mapping[str, Floats]:
        """Return the weights; empty if there are none yet."""
        ...

    def with_weights(self, weights: Mapping[str, Floats]) -> Self:
        """Return this policy with other weights; raise ValueError, with the reason, if they do not fit it."""
        ...


@runtime_checkable
class Following(Protocol):
    """A cluster policy that is notified when the tasks that it has placed complete."""

    def completed(self, task: int, response_s: float) -> None:
        """Record that the task with this number was completed, `response_s` seconds after its arrival."""
        ...


@runtime_checkable
class Profiling(Protocol):
    """A node policy that requires every subtask to be profiled before it decides."""

    #: Duration of each of the two profiling runs, in seconds.
    profile_s: float


@runtime_checkable
class Searching(Protocol):
    """A policy whose decisions improve with more effort."""

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Callable[[], float]) -> Self:
        """Return this policy with another budget of work, or of seconds by `clock`; unchanged if both are None."""
        ...


@runtime_checkable
class Proving(Protocol):
    """A policy that searches until its decision is proven optimal."""

    def proving(self, gap: float | None, report: Report | None) -> Self:
        """Return this policy with another relative `gap` to its bound at which it stops, and a progress callback.

        If `gap` is None, the gap is unchanged.
        """
        ...


@runtime_checkable
class Sparing(Protocol):
    """A policy that can adapt its planning effort to the duration of a batch."""

    def sparing(self, share: float) -> Self:
        """Return this policy with its planning time limited to about this share of the time that a batch takes."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A policy with loops that have to be compiled."""

    def prepare(self) -> None:
        """Compile the loops, or load them from the cache of an earlier run, so that no decision waits for that.

        This changes no decision, and may run in one thread while another one decides.
        """
        ...


@runtime_checkable
class PlanningAround(Protocol):
    """A batch policy that plans with the bandwidth that earlier transfers leave (makespan paper, section 3.4)."""

    def decide_around(
        self, view: BatchProblem, earlier: EarlierTransfers, state: PolicyState, rng: np.random.Generator
    ) -> BatchPlan:
        """Return the plan of a batch that uses no link beyond the bandwidth that `earlier` leaves."""
        ...


@runtime_checkable
class Replanning(Protocol):
    """A batch policy that can change a plan that is being carried out."""

    def replan(self, underway: Underway, state: PolicyState, rng: np.random.Generator) -> Replan | None:
        """Return a plan for all jobs that are not computing yet; None if replanning is not worth the time."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """A batch policy that decides while the batch runs, so that its decisions follow the actual times of jobs."""

    def meet(self, believed: BatchProblem, actual: BatchProblem, rng: np.random.Generator) -> BatchPlan:
        """Return the outcome when jobs are chosen by the times of `believed` but take those of `actual`."""
        ...
