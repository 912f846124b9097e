"""`fpga-pool-sim gangs`: simulate the parallel jobs of a trace on processors with a foreground and a background."""

import argparse
import math
import time
from collections.abc import Mapping

import numpy as np

from fpga_pool.cli.arguments import number_that, positive_count
from fpga_pool.cli.sim.options import add_parameters, add_policy, add_seed
from fpga_pool.conf.policies import tuned_policy
from fpga_pool.core.gangs.progress import UsageSaid
from fpga_pool.core.gangs.sharing import ProgressParams
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.gangs.simulator import simulate
from fpga_pool.sim.gangs.trace import (
    Outcome,
    Trace,
    batch_means,
    bounded_slowdown,
    draw,
    read_trace,
    response_s,
    utilisation,
    writing,
)

_load = number_that(lambda value: 0 < value < math.inf, "a number above 0")
_share = number_that(lambda value: 0 <= value <= 1, "a number from 0 to 1")
_below_one = number_that(lambda value: 0 <= value < 1, "a share, 0 or more and below 1")
_cost_s = number_that(lambda value: 0 <= value < math.inf, "seconds, 0 or more")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument("trace", metavar="TRACE", help="jobs in the Standard Workload Format (.swf, .swf.gz)")
    parser.add_argument(
        "--processors", type=positive_count, required=True, metavar="N", help="number of processors of the machine"
    )
    add_policy(parser, "gang", "measy_plus")
    add_parameters(parser, "the policy, such as extra_ends=all")
    parser.add_argument(
        "--load",
        type=_load,
        metavar="R",
        help="scale all times between submissions to get this load (default: unchanged)",
    )
    parser.add_argument(
        "--usage-per-process",
        action="store_true",
        help="draw the CPU usage of each process separately (default: once per gang)",
    )
    parser.add_argument(
        "--migration-cost",
        type=_cost_s,
        default=20.0,
        metavar="S",
        help="duration of a migration in seconds (default: 20)",
    )
    _add_physics(parser)
    parser.add_argument("--out", required=True, metavar="JOBS", help="output file (.csv): outcome of each job")
    parser.add_argument(
        "--intervals", metavar="SPANS", help="output file (.csv): which process ran where and at what rate"
    )
    parser.add_argument(
        "--waiting",
        metavar="WAITING",
        help="output file (.csv): for each job that waits when submitted, its expected start in the foreground and "
        "the reason it waits",
    )
    add_seed(parser)


def _add_physics(parser: argparse.ArgumentParser) -> None:
    """Add the parameters that the two-tier paper measured or assumed; the defaults are its values."""
    default = ProgressParams()
    more = parser.add_argument_group("progress model of the two tiers; two-tier paper")
    for option, values, what in (
        ("--usage", default.usage, "CPU usage of processes of gangs of two or more, uniform; section 3.1"),
        ("--loss", default.loss, "loss of a foreground process that shares its processor, uniform; section 2.1"),
        ("--used-single", default.single, "share of idle cycles used by gangs of one, uniform; section 2.1"),
        ("--used-several", default.several, "by wider gangs, normal and cut to this range; section 2.1"),
    ):
        low, high = values
        more.add_argument(
            option,
            type=_share,
            nargs=2,
            default=values,
            metavar=("LOW", "HIGH"),
            help=f"{what} (default: {low:g} {high:g})",
        )
    mean, deviation = default.several_mean, default.several_deviation
    more.add_argument(
        "--used-several-normal",
        type=_share,
        nargs=2,
        default=(mean, deviation),
        metavar=("MEAN", "DEV"),
        help=f"mean and standard deviation of that; missing in the published text (default: {mean:g} {deviation:g})",
    )
    more.add_argument(
        "--usage-threshold",
        type=_share,
        default=default.usage_threshold,
        metavar="U",
        help="foreground usage from which on the background makes no progress; also a parameter of the policies; "
        f"section 2.1 (default: {default.usage_threshold:g})",
    )
    said = more.add_mutually_exclusive_group()
    said.add_argument(
        "--usage-unknown", action="store_true", help="policies do not know the usage of gangs of two or more"
    )
    said.add_argument(
        "--usage-error",
        type=_below_one,
        default=0.0,
        metavar="R",
        help="relative error of the usage that policies know, uniform in both directions (default: 0)",
    )


def run(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    """Run the simulation, write the requested files, and return a summary of the outcome."""
    policy = tuned_policy("gang", arguments.policy, dict(arguments.parameter))
    trace, left_out = read_trace(arguments.trace, arguments.processors)
    if arguments.load is not None:
        try:
            trace = trace.with_load(arguments.load, arguments.processors)
        except ValueError as error:
            raise InvalidInput(f"{arguments.trace}: {error}") from None
    params = _progress(arguments)
    said = UsageSaid(unknown=arguments.usage_unknown, error=arguments.usage_error)
    rng = np.random.default_rng(arguments.seed)
    gangs, shares = draw(trace, params, rng, per_process=arguments.usage_per_process, said=said)
    policy.prepare()
    with writing(trace, arguments.out, arguments.intervals, arguments.waiting) as files:
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
            outlooks=arguments.waiting is not None,
        )
        simulation_s = time.perf_counter() - begin_s
    return {"policy": arguments.policy, **_judged(trace, outcome, arguments.processors), "left_out": left_out,
            "events_per_s": outcome.events / max(simulation_s, 1e-9), "simulation_s": simulation_s}  # fmt: skip


def _progress(arguments: argparse.Namespace) -> ProgressParams:
    several_mean, several_deviation = arguments.used_several_normal
    try:
        return ProgressParams(
            usage_threshold=arguments.usage_threshold,
            loss=tuple(arguments.loss),
            single=tuple(arguments.used_single),
            several=tuple(arguments.used_several),
            several_mean=several_mean,
            several_deviation=several_deviation,
            usage=tuple(arguments.usage),
        )
    except ValueError as error:
        raise InvalidInput(f"physics: {error}") from None


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
