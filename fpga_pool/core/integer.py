"""Mixed integer programs written with PuLP: solved by HiGHS, or else CBC, with limits and progress reports.

PuLP is imported only when a program is created, so that other users neither wait for it nor have to install it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fpga_pool.core.parameters import Parameters, parameter

if TYPE_CHECKING:
    from pulp import LpProblem

#: Feasibility and integrality tolerance: violations at the solvers' default of 1e-6 would add up along a schedule.
_FEASIBLE = 1e-9
#: Relative amount by which a solver's bound is lowered before it counts as proven.
_ROUNDING = 1e-6
#: Minimum seconds between two progress reports.
_REPORTS_S = 0.5
_INSTALL = "pip install 'fpga_pool[exact]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a solver; values that it does not know yet are infinite."""

    #: Objective of the best solution found, and the proven lower bound on the objective.
    incumbent: float
    bound: float
    elapsed_s: float

    @property
    def gap(self) -> float:
        """Return the distance between bound and incumbent relative to the incumbent; infinite if one is unknown."""
        if not (np.isfinite(self.incumbent) and np.isfinite(self.bound)):
            return np.inf
        return abs(self.incumbent - self.bound) / max(abs(self.incumbent), 1e-300)


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits at which a solver stops, and its progress callback."""

    #: Limit in seconds of wall-clock time; inf = no limit.
    time_limit_s: float = np.inf
    #: Distance between incumbent and bound, relative to the incumbent.
    gap: float = 1e-6
    #: Limit on nodes of the search tree, which makes results reproducible; None = no limit.
    nodes: int | None = None
    #: Called with the progress, twice a second at most.
    report: Report | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Outcome of a search.  The solution itself is stored in the variables of the program."""

    #: Whether the variables hold a solution.
    found: bool
    #: Proven lower bound on the objective; infinite if the program is proven infeasible.
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactParams(Parameters):
    """Parameters of the policies `exact`."""

    time_limit_s: float = parameter(
        60.0,
        "Search time in seconds; then the best solution found and the proven bound are returned. Above 0.",
        min=0.0,
        above=0.0,
    )
    effort: int = parameter(
        0, "Limit on nodes of the search tree instead of time, which makes results reproducible; 0 = by time.", min=0
    )
    gap: float = parameter(
        1e-6, "Relative gap between the best solution and the bound at which the search ends.", min=0.0, below=1.0
    )
    #: Enough for a joint batch of 12 jobs on 30 accelerators; the solver already takes minutes for far less.
    unknowns: int = parameter(5000, "Maximum number of integer variables; larger problems are refused.", min=1)

    def limited(self, effort: int | None, time_limit_s: float | None) -> "ExactParams":
        """Return these parameters with another limit on nodes or seconds; unchanged if both are None."""
        if effort is not None:
            return replace(self, effort=max(1, effort))
        return self if time_limit_s is None else replace(self, time_limit_s=time_limit_s, effort=0)

    def limits(self, report: Report | None) -> Limits:
        """Return the limits of a solver, including its progress callback."""
        nodes = self.effort or None
        return Limits(time_limit_s=np.inf if nodes else self.time_limit_s, gap=self.gap, nodes=nodes, report=report)

    def require_few(self, unknowns: int) -> None:
        """Raise ValueError if a problem has more integer variables than allowed."""
        if unknowns > self.unknowns:
            raise ValueError(f"problem too large: {unknowns} integer variables, the limit is {self.unknowns}")


class ExactPolicy:
    """Base of the policies `exact`: their limits and the progress callback."""

    name = "exact"
    Params = ExactParams

    def __init__(self, params: ExactParams | None = None, report: Report | None = None) -> None:
        self._params, self._report = params or ExactParams(), report

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Callable[[], float]) -> Self:
        """Return this policy with another limit: on nodes of the search tree, or on seconds of its solver."""
        return type(self)(self._params.limited(effort, time_limit_s), self._report)

    def proving(self, gap: float | None, report: Report | None) -> Self:
        """Return this policy with another gap and a progress callback."""
        return type(self)(self._params if gap is None else replace(self._params, gap=gap), report)

    def _limits(self, horizon_s: float) -> Limits:
        """Return the limits of a solver whose objective is a share of the horizon; progress is reported in seconds."""

        def on_progress(progress: Progress) -> None:
            self._report_progress(
                horizon_s * min(1.0, progress.incumbent), horizon_s * progress.bound, progress.elapsed_s
            )

        return self._params.limits(on_progress if self._report is not None else None)

    def _report_progress(self, incumbent_s: float, bound_s: float, elapsed_s: float = 0.0) -> None:
        if self._report is not None:
            self._report(Progress(incumbent=incumbent_s, bound=min(bound_s, incumbent_s), elapsed_s=elapsed_s))


def programme(name: str) -> "LpProblem":
    """Return an empty minimization problem; raise ValueError with installation advice if PuLP is missing."""
    try:
        import pulp
    except ImportError:
        raise ValueError(f"requires PuLP and a solver, HiGHS or CBC: {_INSTALL}") from None
    return pulp.LpProblem(name, pulp.LpMinimize)


def solve(model: "LpProblem", limits: Limits, known: float) -> Solved:
    """Search for the best solution of a program within limits; raise ValueError if no solver is installed.

    `known` is a lower bound that is already proven.
    """
    import pulp

    if pulp.HiGHS().available():
        return _by_highs(model, limits, known)
    if pulp.PULP_CBC_CMD().available():
        return _by_cbc(model, limits, known)
    raise ValueError(f"PuLP finds neither HiGHS nor CBC: {_INSTALL}")


def _by_highs(model: "LpProblem", limits: Limits, known: float) -> Solved:
    import highspy
    import pulp

    next_s = _REPORTS_S

    def on_progress(*said: Any) -> None:
        """Report the progress; called between search steps, with the progress in the third argument."""
        nonlocal next_s
        out = said[2]
        if report is None or out.running_time < next_s:
            return
        next_s = out.running_time + _REPORTS_S
        bound = max(known, out.mip_dual_bound)
        report(Progress(incumbent=out.mip_primal_bound, bound=bound, elapsed_s=out.running_time))

    highs = _silent_highs()
    model.solverModel = highs
    options: dict[str, float] = {
        "mip_rel_gap": limits.gap,
        "mip_abs_gap": 0.0,
        "threads": 1,
        "mip_feasibility_tolerance": _FEASIBLE,
        "primal_feasibility_tolerance": _FEASIBLE,
        "dual_feasibility_tolerance": _FEASIBLE,
        "time_limit": limits.time_limit_s,
    }
    if limits.nodes is not None:
        options["mip_max_nodes"] = limits.nodes
    for name, value in options.items():
        highs.setOptionValue(name, value)
    report = limits.report
    if report is not None:
        highs.setCallback(on_progress, None)
        highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    pulp.HiGHS(msg=False).buildSolverModel(model)
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    ends = highspy.HighsModelStatus
    if status == ends.kInfeasible:
        return Solved(found=False, bound=np.inf)
    if status not in (ends.kOptimal, ends.kTimeLimit, ends.kSolutionLimit):
        raise ValueError(f"HiGHS failed: {highs.modelStatusToString(status)}")
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if found:
        values = highs.getSolution().col_value
        for variable in model.variables():
            variable.varValue = values[variable.index]
    if model.isMIP():
        proven = info.mip_dual_bound
    else:
        proven = info.objective_function_value if status == ends.kOptimal else -np.inf
    return Solved(found=found, bound=max(known, _with_slack(proven)))


def _silent_highs() -> Any:
    import highspy

    class SilentHighs(highspy.Highs):
        """A solver that does not even print its version banner on standard output."""

        def enableCallbacks(self) -> None:  # noqa: N802
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()  # type: ignore[no-untyped-call]

    return SilentHighs()  # type: ignore[no-untyped-call]


def _by_cbc(model: "LpProblem", limits: Limits, known: float) -> Solved:
    """Solve with CBC, for which PuLP reports no progress, and a bound only if it proves an optimum."""
    import pulp

    # CBC's preprocessing loses solutions.
    options = [f"integerTolerance {_FEASIBLE}", f"primalTolerance {_FEASIBLE}", "preprocess off"]
    solver = pulp.PULP_CBC_CMD(
        msg=False,
        gapRel=limits.gap,
        timeLimit=limits.time_limit_s if np.isfinite(limits.time_limit_s) else None,
        maxNodes=limits.nodes,
        options=options,
    )
    status = model.solve(solver)
    if status in (pulp.LpStatusInfeasible, pulp.LpStatusUndefined) and model.sol_status == pulp.LpSolutionInfeasible:
        return Solved(found=False, bound=np.inf)
    found = model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    proven = -np.inf
    if model.sol_status == pulp.LpSolutionOptimal:
        objective = float(model.objective.value())
        proven = objective - limits.gap * abs(objective)
    return Solved(found=found, bound=max(known, _with_slack(proven)))


def _with_slack(bound: float) -> float:
    """Return the bound lowered by the rounding tolerance."""
    return bound - _ROUNDING * abs(bound) if np.isfinite(bound) else bound
