"""The interface of scheduling policies: five groups, decisions as data, and the abilities that a policy may have.

A policy is named by an entry point in one of the groups of `GROUPS`.  It never sees anything mutable: it gets a
view, its own state (plain data that can be stored), the time and a random generator, and returns a decision.
A shell (service or simulator) commits the decision or drops it.

Optional abilities are separate protocols, below.  A shell asks for one by `isinstance`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.core.benefit.pool import Move as OnlineMove
from fpga_pool.core.cluster.nodes import NodePolicy
from fpga_pool.core.cluster.views import ClusterView
from fpga_pool.core.gangs.gangs import Move as GangMove
from fpga_pool.core.gangs.tiers import Tiers
from fpga_pool.core.integer import Report
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats

if TYPE_CHECKING:  # the planners import this module
    from fpga_pool.core.makespan.replan import Replan
    from fpga_pool.core.makespan.underway import Underway

#: Entry-point group of each family of policies.
GROUPS: Mapping[str, str] = {
    name: f"fpga_pool.policies.{name}" for name in ("batch", "online", "gang", "task", "cluster")
}

#: Plain data (JSON types) that a policy remembers between decisions; None for those that remember nothing.
PolicyState = Mapping[str, Any] | None

ViewT_contra = TypeVar("ViewT_contra", contravariant=True)
DecisionT_co = TypeVar("DecisionT_co", covariant=True)


@runtime_checkable
class Policy(Protocol[ViewT_contra, DecisionT_co]):
    """A scheduling algorithm behind the common interface."""

    #: The entry point's name.
    name: str

    def decide(self, view: ViewT_contra, state: PolicyState, now_s: float, rng: np.random.Generator) -> DecisionT_co:
        """Return the decision for this view; the same for the same policy, arguments and state of `rng`.

        ValueError says why the policy does not apply to this view.
        """
        ...


# Batches (makespan paper) -------------------------------------------------------------------------------------

#: A whole batch at once: jobs to accelerators, order, transfer rates.
BatchPolicy = Policy[BatchProblem, BatchPlan]


# Online jobs (benefit paper) ----------------------------------------------------------------------------------

#: What waits, runs and loads, to the next move; asked again after each move, until there is nothing to do.  The view is
#: kept up to date by the shell, because a picture of thousands of slots for each arrival would cost more than all
#: decisions on it; policies only read it.
OnlinePolicy = Policy[Occupancy, OnlineMove | None]


# Gangs on two tiers (two-tier paper) --------------------------------------------------------------------------


@runtime_checkable
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


# Multi-FPGA tasks (lattice paper) -----------------------------------------------------------------------------

#: Tasks and enclosures to a schedule of all of them.
TaskPolicy = Policy[TaskProblem, TaskSchedule]


# Pipelines on a cluster (learned placement paper) ---------------------------------------------------------------


@runtime_checkable
class ClusterPolicy(Policy[ClusterView, int | None], Protocol):
    """A task to the node that executes it, None while there is none; the view is kept up to date by the shell."""

    #: Decides within each node.
    node: NodePolicy
    #: Whether the shell corrects the estimates in the views by the times that subtasks took.
    calibrate: bool


# Abilities ----------------------------------------------------------------------------------------------------


@runtime_checkable
class Parametrised(Protocol):
    """A class of policies with parameters: its constructor takes one object of `Params`, or none."""

    #: A frozen dataclass that checks itself; each field says in its metadata what it means.
    Params: ClassVar[type[Any]]


@runtime_checkable
class Remembering(Protocol):
    """A policy of any family that learns: it folds events into the state that its next decision gets."""

    def observe(self, event: Mapping[str, Any], state: PolicyState) -> PolicyState:
        """Return the state after `event`, plain data both; `state` itself stays as it is."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A policy for clusters or nodes that learns while it decides."""

    def learner(self, rng: np.random.Generator) -> Self:
        """Return this policy with a memory of its own, for one run; `rng` draws its initial weights."""
        ...


@runtime_checkable
class Trained(ClusterPolicy, Protocol):
    """A cluster policy with weights, arrays by name; one that is learning as well has those that it has learned."""

    @property
    def weights(self) -> Mapping[str, Floats]:
        """Return the weights; empty while there are none."""
        ...

    def with_weights(self, weights: Mapping[str, Floats]) -> Self:
        """Return this policy with other weights; ValueError says why they are none of its own."""
        ...


@runtime_checkable
class Following(Protocol):
    """A cluster policy that follows what becomes of the tasks that it has placed."""

    def completed(self, task: int, response_s: float) -> None:
        """Note that a task has been completed, by its number, and how long after its arrival."""
        ...


@runtime_checkable
class Profiling(Protocol):
    """A node policy that wants every subtask profiled before it decides."""

    #: Seconds of each of the two runs.
    profile_s: float


@runtime_checkable
class Searching(Protocol):
    """A policy that gets better with more effort."""

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Callable[[], float]) -> Self:
        """Return this policy with another budget: of work, or of seconds by `clock`; as before where both are None."""
        ...


@runtime_checkable
class Proving(Protocol):
    """A policy that goes on until its decision is proven to be the best."""

    def proving(self, gap: float | None, report: Report | None) -> Self:
        """Return this policy, to end within a relative `gap` of its bound, and to report its progress.

        Where a gap is None it stays as it is.
        """
        ...


@runtime_checkable
class Sparing(Protocol):
    """A policy that can adapt its effort to what its plan is worth."""

    def sparing(self, share: float) -> Self:
        """Return this policy, planning for at most about a share of the time that a batch takes."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A policy with loops to compile."""

    def prepare(self) -> None:
        """Compile what deciding may need, or load it from the cache of an earlier run: no decision waits for it then.

        It changes no decision, and may run in one thread while another one decides.
        """
        ...


@runtime_checkable
class PlanningAround(Protocol):
    """A batch policy that plans in what earlier transfers leave of the network (makespan paper, section 3.4)."""

    def decide_around(
        self, view: BatchProblem, earlier: EarlierTransfers, state: PolicyState, rng: np.random.Generator
    ) -> BatchPlan:
        """Return the plan of a batch; no link is used beyond what `earlier` leaves."""
        ...


@runtime_checkable
class Replanning(Protocol):
    """A batch policy that can change a plan that is being carried out."""

    def replan(self, underway: "Underway", state: PolicyState, rng: np.random.Generator) -> "Replan | None":
        """Return a plan for all jobs that do not compute yet; None where it is not worth a look."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """A batch policy that decides as the batch goes on, so that its decisions follow the times jobs really take."""

    def meet(self, believed: BatchProblem, actual: BatchProblem, rng: np.random.Generator) -> BatchPlan:
        """Return the outcome where jobs are chosen by the times of `believed`, and take those of `actual`."""
        ...
