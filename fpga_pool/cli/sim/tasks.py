"""`fpga-pool-sim tasks`: schedule the tasks in a file on several linked FPGAs."""

import argparse
import math
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fpga_pool.cli.arguments import number_that
from fpga_pool.cli.sim.options import add_policy, add_proof, add_search, proving
from fpga_pool.conf.policies import load_policy
from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.paper import Lattice, LatticeParams, irregularity
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import Preparing, Searching, TaskPolicy
from fpga_pool.experiments.animation import animated_tasks
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.lattice import files
from fpga_pool.sim.lattice.simulator import simulate

_patience_s = number_that(lambda value: 0 <= value < math.inf, "seconds, 0 or more")
_slice_s = number_that(lambda value: 0 <= value < math.inf, "seconds, 0 or more")
#: Default effort, in units of work, of each plan for the waiting tasks: there is a plan for each event.
_ONLINE_EFFORT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument("problem", metavar="PROBLEM", help="enclosures and tasks (.json)")
    add_policy(parser, "task", "lattice_plus")
    parser.add_argument(
        "--out", required=True, metavar="SCHEDULE", help="output schedule (.json): place and time of each task"
    )
    add_proof(parser)
    parser.add_argument("--picture", metavar="FILE", help="draw the schedule (.svg, .png); requires matplotlib")
    parser.add_argument("--animation", metavar="FILE", help="show the schedule as time goes by (.svg, for a browser)")
    parser.add_argument(
        "--slice",
        type=_slice_s,
        metavar="S",
        help="for lattice: time between decisions in seconds (default: 0, whenever FPGAs become free or tasks arrive)",
    )
    parser.add_argument(
        "--order",
        metavar="LIST",
        help="for lattice: dimensions of the partial order, of fpgas, links, and seconds or -seconds "
        f"(default: {LatticeParams().order})",
    )
    parser.add_argument(
        "--online",
        action="store_true",
        help="let tasks arrive over time, and replan the waiting tasks at each event, without knowledge of the future",
    )
    parser.add_argument(
        "--patience",
        type=_patience_s,
        metavar="S",
        help="online: a task that waits longer gets the FPGAs reserved on which it can start first (default: no "
        "reservations)",
    )
    parser.add_argument("--outages", metavar="FILE", help="online: temporary outages of FPGAs (.json)")
    at_once = "ignored by all policies but lattice_plus and exact, as they need no search"
    add_search(
        parser,
        time_limit=f"search time in seconds; {at_once}",
        effort=f"search effort in units of work (for exact: nodes; online: per plan), reproducible; {at_once}",
    )


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Schedule the tasks, write the schedule, and return a summary of it."""
    if not arguments.online and (arguments.patience is not None or arguments.outages is not None):
        raise InvalidInput("--patience and --outages: require --online")
    if arguments.picture is not None:
        _check_picture(arguments.picture)
    policy = _policy(arguments)
    file = files.read_problem(arguments.problem)
    problem = file.problem
    rng = np.random.default_rng(arguments.seed)
    begin_s = time.perf_counter()
    if isinstance(policy, Preparing):
        policy.prepare()
    compiled_s = time.perf_counter()
    said: Mapping[str, float] = {}
    try:
        if arguments.online:
            schedule, said = _online(arguments, problem, policy)
        else:
            schedule = policy.decide(problem, None, 0.0, rng)
    except ValueError as error:
        raise InvalidInput(f"{arguments.problem}: policy {arguments.policy}: {error}") from error
    planned_s = time.perf_counter()
    files.write_schedule(arguments.out, file.ids, schedule)
    if arguments.picture is not None:
        from fpga_pool.experiments.charts import draw_schedule

        draw_schedule(problem, schedule, file.ids, _title(arguments, schedule), Path(arguments.picture))
    if arguments.animation is not None:
        animated = animated_tasks(problem, schedule, file.ids, _title(arguments, schedule))
        Path(arguments.animation).write_text(animated, encoding="utf-8")
    workload = np.unique(np.array(file.workloads), return_inverse=True)[1]
    each = irregularity(problem.shape_seconds[schedule.shape], workload)
    return {
        "policy": arguments.policy,
        "planning_s": planned_s - compiled_s,
        "compile_s": compiled_s - begin_s,
        "wct_s": schedule.wct_s,
        "bound_paper_s": schedule.bound_paper_s,
        "bound_tight_s": schedule.bound_tight_s,
        "share_of_paper_bound": _share(schedule.bound_paper_s, schedule.wct_s),
        "share_of_tight_bound": _share(schedule.bound_tight_s, schedule.wct_s),
        "tasks": problem.tasks,
        "workloads": len(each),
        "mean_irregularity": float(each.mean()) if len(each) else 0.0,
        **said,
    }


def _online(
    arguments: argparse.Namespace, problem: TaskProblem, policy: TaskPolicy
) -> tuple[TaskSchedule, Mapping[str, float]]:
    """Simulate the arrivals; return the schedule and its statistics."""
    outages = files.read_outages(arguments.outages, problem) if arguments.outages else ()
    patience_s = math.inf if arguments.patience is None else arguments.patience
    outcome = simulate(problem, policy, outages=outages, patience_s=patience_s, seed=arguments.seed)
    waits_s = outcome.begin_s - problem.arrival_s
    return outcome.schedule(paper_bound_s(problem), tight_bound_s(problem)), {
        "mean_wait_s": float(waits_s.mean()) if len(waits_s) else 0.0,
        "longest_wait_s": float(waits_s.max(initial=0.0)),
        "lost_runs": outcome.lost_runs,
        "plans": outcome.plans,
    }


def _policy(arguments: argparse.Namespace) -> Any:
    """Return the policy, configured as the arguments say."""
    policy = load_policy("task", arguments.policy)
    if arguments.slice is not None or arguments.order is not None:
        if not isinstance(policy, Lattice):
            raise InvalidInput(f"--slice and --order: only for the policy lattice, got {arguments.policy}")
        given = {"slice_s": arguments.slice, "order": arguments.order}
        try:
            policy = Lattice(LatticeParams(**{name: value for name, value in given.items() if value is not None}))
        except ValueError as error:
            raise InvalidInput(f"--order: {error}") from None
    if isinstance(policy, Searching):
        effort = arguments.effort
        if arguments.online and effort is None and arguments.time_limit is None:
            effort = _ONLINE_EFFORT
        policy = policy.searching(effort, arguments.time_limit, time.perf_counter)
    return proving(policy, arguments)


def _check_picture(name: str) -> None:
    if not name.endswith((".svg", ".png")):
        raise InvalidInput(f"--picture: expected a name that ends with .svg or .png, got {name}")
    if find_spec("matplotlib") is None:
        raise InvalidInput("--picture: requires matplotlib: pip install 'fpga_pool[figures]'")


def _title(arguments: argparse.Namespace, schedule: TaskSchedule) -> str:
    share = 100 * _share(schedule.bound_tight_s, schedule.wct_s)
    return f"{arguments.policy}: {schedule.wct_s:.6g} s, {share:.1f} % of the tight bound"


def _share(bound_s: float, wct_s: float) -> float:
    return bound_s / wct_s if wct_s > 0 else 1.0
