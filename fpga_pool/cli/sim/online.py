"""`fpga-pool-sim online`: simulate jobs that arrive over time, on a pool of equal hosts."""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from fpga_pool.cli.arguments import number_that, positive_count, positive_seconds
from fpga_pool.cli.sim.options import add_search
from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.benefit.bound import VARIABLES, Clairvoyant, Windows, upper_bound, windows
from fpga_pool.core.benefit.exact import Optimum, optimum
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.model.catalogue import Board, Catalogue
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.benefit.live import Outcome, PoolRules, simulate
from fpga_pool.sim.benefit.trace import Trace, read_trace, uniform_pool, write_jobs, write_stretches

#: An optimum counts as found if its relative gap is at most this, which is due to rounding.
_FOUND = 1e-6

#: Interval between decisions, as a share of a step, so that each precedes the events at the end of the step.
_JUST_BEFORE = 1 - 1e-10

_share = number_that(lambda value: 0 < value <= 1, "a number above 0, 1 at most")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    names = ", ".join(policy_names("online"))
    parser.add_argument("jobs", metavar="JOBS", help="jobs that arrive (.csv)")
    parser.add_argument("--catalogue", required=True, metavar="FILE", help="functions and boards (.toml)")
    parser.add_argument(
        "--policy",
        required=True,
        metavar="NAME",
        help=f"online policy: {names}; or {Clairvoyant.name}, a reference that knows the whole trace and executes its "
        "optimal schedule; requires --optimum",
    )
    parser.add_argument("--hosts", type=positive_count, default=1, metavar="H", help="number of hosts (default: 1)")
    parser.add_argument("--cards", type=positive_count, default=1, metavar="K", help="cards per host (default: 1)")
    parser.add_argument("--board", metavar="NAME", help="board of all cards (default: the first of the catalogue)")
    parser.add_argument(
        "--horizon",
        type=positive_seconds,
        metavar="S",
        help="period in which benefit counts, in seconds (default: until the last arrival)",
    )
    parser.add_argument(
        "--tenant-share",
        type=_share,
        default=1.0,
        metavar="F",
        help="maximum share of all slots that the jobs of one project may use at a time (default: 1, no limit)",
    )
    parser.add_argument(
        "--rules",
        choices=("paper", "pool"),
        default="paper",
        help="paper: a job that waits too long runs on a dedicated CPU (default); pool: as in the scheduler, with a"
        " limited number of CPU workers, on which a job runs after it has waited for its compute time on a slot",
    )
    parser.add_argument(
        "--cpu-workers",
        type=positive_count,
        metavar="N",
        help="number of CPU workers with --rules pool (default: one per host)",
    )
    parser.add_argument(
        "--optimum",
        type=positive_seconds,
        metavar="STEP",
        help="report the benefit of the optimal schedule, with times rounded down to multiples of STEP seconds; for "
        "short traces",
    )
    parser.add_argument("--out", required=True, metavar="RUNS", help="output file (.csv): where each job ran")
    parser.add_argument("--intervals", metavar="STRETCHES", help="output file (.csv): activity of each slot")
    add_search(
        parser,
        time_limit="search time in seconds for the bound per job and for the optimum; a looser bound is always found",
        effort="compute the bound per job if that takes at most N thousand variables, otherwise a looser bound "
        "(default: 300)",
    )


def run(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    """Run the simulation, write the requested files, and return a summary of the outcome."""
    exact = arguments.policy == Clairvoyant.name
    if exact and arguments.optimum is None:
        raise InvalidInput(f"--policy {Clairvoyant.name}: requires --optimum STEP")
    loaded = None if exact else load_policy("online", arguments.policy)
    catalogue = load_catalogue(Path(arguments.catalogue))
    pool = uniform_pool(catalogue, _board(catalogue, arguments), arguments.hosts, arguments.cards)
    trace = read_trace(arguments.jobs, pool)
    rules = _pool_rules(arguments, trace)
    horizon_s = trace.last_arrival_s if arguments.horizon is None else arguments.horizon
    jobs = windows(pool, trace.function, trace.arrival_s, trace.work_s, trace.patience_s)
    begin_s = time.perf_counter()
    best = _optimum(pool, jobs, horizon_s, arguments) if exact else None
    policy: OnlinePolicy | None = loaded if best is None else Clairvoyant(best.actions, arguments.optimum)
    assert policy is not None  # noqa: S101
    outcome = simulate(
        pool,
        trace,
        policy,
        horizon_s=horizon_s,
        interval_s=0.1 if best is None else arguments.optimum * _JUST_BEFORE,
        seed=arguments.seed,
        keep_stretches=arguments.intervals is not None,
        tenant_share=arguments.tenant_share if rules is None else 1.0,
        rules=rules,
    )
    simulated_s = time.perf_counter()
    write_jobs(arguments.out, trace, outcome.record)
    if arguments.intervals is not None:
        write_stretches(arguments.intervals, trace, outcome.record, pool, arguments.cards)
    written_s = time.perf_counter()
    bound_vcpus = upper_bound(
        pool,
        jobs,
        outcome.horizon_s,
        variables=VARIABLES if arguments.effort is None else 1000 * arguments.effort,
        time_limit_s=arguments.time_limit,
    )
    said: dict[str, str | float] = {
        "policy": arguments.policy,
        "mean_benefit_vcpus": outcome.mean_benefit_vcpus,
        "bound_vcpus": bound_vcpus,
        "share_of_bound": outcome.mean_benefit_vcpus / bound_vcpus if bound_vcpus > 0 else 1.0,
        "horizon_s": outcome.horizon_s,
        "reconfigurations": outcome.reconfigurations,
        "jobs_on_fpga": outcome.jobs_on_fpga,
        "jobs_on_cpu": outcome.jobs_on_cpu,
        "simulation_s": simulated_s - begin_s,
        "bounding_s": time.perf_counter() - written_s,
    }
    if arguments.optimum is not None:
        said |= _share_of_optimum(best or _optimum(pool, jobs, horizon_s, arguments), outcome)
    return said


def _pool_rules(arguments: argparse.Namespace, trace: Trace) -> PoolRules | None:
    """Return the rules of a live pool; None = the paper's model."""
    if arguments.rules == "paper":
        if arguments.cpu_workers is not None:
            raise InvalidInput("--cpu-workers: needs --rules pool")
        return None
    if arguments.policy == Clairvoyant.name:
        raise InvalidInput(f"--rules pool: not with --policy {Clairvoyant.name}, which follows the paper's model")
    if (trace.function < 0).any():
        raise InvalidInput(f"--rules pool: {arguments.jobs} has jobs that fit into no slot; a pool refuses them")
    settings = PoolSettings(tenant_share=arguments.tenant_share)
    return PoolRules(settings=settings, cpu_workers=arguments.cpu_workers or arguments.hosts)


def _optimum(pool: OnlinePool, jobs: Windows, horizon_s: float, arguments: argparse.Namespace) -> Optimum:
    return optimum(pool, jobs, horizon_s, step_s=arguments.optimum, time_limit_s=arguments.time_limit)


def _share_of_optimum(found: Optimum, outcome: Outcome) -> Mapping[str, str | float]:
    """Return the optimum and the achieved share of it; bounds of both if it was not found within the time limit."""
    most_vcpus = found.most_vcpus
    share = outcome.mean_benefit_vcpus / most_vcpus if most_vcpus > 0 else 1.0
    if found.gap > _FOUND:
        # Only a lower bound of the share is known.
        return {
            "optimum": "not found within the time limit",
            "optimum_at_most_vcpus": most_vcpus,
            "share_of_optimum": share,
        }
    return {"optimum_vcpus": most_vcpus, "share_of_optimum": share}


def _board(catalogue: Catalogue, arguments: argparse.Namespace) -> Board:
    if not catalogue.boards:
        raise InvalidInput(f"{arguments.catalogue}: no boards; a simulation needs at least one")
    name = arguments.board or next(iter(catalogue.boards))
    try:
        return catalogue.board(name)
    except NotFound as error:
        raise InvalidInput(f"{arguments.catalogue}: {error}") from None
