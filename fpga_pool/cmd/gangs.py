"""`fpga-pool-sim gangs`: parallel jobs on processors with a foreground and a background, from a trace."""

import argparse
import math
import time
from collections.abc import Mapping

import numpy as np

from fpga_pool.cmd.arguments import number_that, positive_count
from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.gangs.compiled import fastest
from fpga_pool.core.gangs.progress import ProgressParams
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.gangs.files import writing
from fpga_pool.sim.gangs.measures import batch_means, bounded_slowdown, response_s, utilisation
from fpga_pool.sim.gangs.simulator import Outcome, simulate
from fpga_pool.sim.gangs.trace import Trace, draw, read_trace

_load = number_that(lambda value: 0 < value < math.inf, "a number above 0")
_cost_s = number_that(lambda value: 0 <= value < math.inf, "seconds, 0 or more")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    names = ", ".join(policy_names("gang"))
    parser.add_argument("trace", metavar="TRACE", help="jobs in the Standard Workload Format (.swf, .swf.gz)")
    parser.add_argument(
        "--processors", type=positive_count, required=True, metavar="N", help="processors of the machine"
    )
    parser.add_argument(
        "--policy", default="measy_plus", metavar="NAME", help=f"who decides: {names} (default: measy_plus)"
    )
    parser.add_argument(
        "--load",
        type=_load,
        metavar="R",
        help="multiply all times between submissions so that this is the load (default: leave them)",
    )
    parser.add_argument(
        "--usage-per-process",
        action="store_true",
        help="draw the CPU usage of each process (default: one for all processes of a gang)",
    )
    parser.add_argument(
        "--migration-cost",
        type=_cost_s,
        default=20.0,
        metavar="S",
        help="seconds that a migration takes (default: 20)",
    )
    parser.add_argument("--out", required=True, metavar="JOBS", help="what became of each job, to write (.csv)")
    parser.add_argument("--intervals", metavar="SPANS", help="what ran where at which rate, to write (.csv)")


def run(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    """Simulate; write what was asked for and return what came of it."""
    policy = load_policy("gang", arguments.policy)
    trace, left_out = read_trace(arguments.trace, arguments.processors)
    if arguments.load is not None:
        try:
            trace = trace.with_load(arguments.load, arguments.processors)
        except ValueError as error:
            raise InvalidInput(f"{arguments.trace}: {error}") from None
    params = ProgressParams()
    rng = np.random.default_rng(arguments.seed)
    gangs, shares = draw(trace, params, rng, per_process=arguments.usage_per_process)
    fastest()
    with writing(trace, arguments.out, arguments.intervals) as files:
        begin_s = time.perf_counter()
        outcome = simulate(
            arguments.processors,
            trace,
            gangs,
            shares,
            policy,
            params=params,
            migration_s=arguments.migration_cost,
            seed=arguments.seed,
            sink=files,
        )
        simulation_s = time.perf_counter() - begin_s
    return {"policy": arguments.policy, **_judged(trace, outcome, arguments.processors), "left_out": left_out,
            "events_per_s": outcome.events / max(simulation_s, 1e-9), "simulation_s": simulation_s}  # fmt: skip


def _judged(trace: Trace, outcome: Outcome, processors: int) -> Mapping[str, float]:
    count = len(trace.job)
    responses_s, slowdowns = response_s(trace, outcome), bounded_slowdown(trace, outcome)
    front, behind = utilisation(processors, trace, outcome)
    said: dict[str, float] = {
        "jobs": count,
        "load": trace.load(processors),
        "mean_response_s": float(responses_s.mean()) if count else 0.0,
        "mean_bounded_slowdown": float(slowdowns.mean()) if count else 0.0,
    }
    for name, values in (("response_s", responses_s), ("bounded_slowdown", slowdowns)):
        found = batch_means(values)
        if not math.isnan(found.half_width):
            said |= {f"batch_mean_{name}": found.mean, f"batch_half_width_{name}": found.half_width}
    return said | {
        "fg_utilisation": front,
        "bg_utilisation": behind,
        "migrations": outcome.migrations,
        "kills": outcome.kills,
        "tier_swaps": outcome.tier_swaps,
    }
