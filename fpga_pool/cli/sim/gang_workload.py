"""`fpga-pool-sim workload`: generate traces of parallel jobs from a model, with users' estimates of run times."""

import argparse
import math
from collections.abc import Mapping

import numpy as np

from fpga_pool.cli.arguments import number_that, positive_count
from fpga_pool.cli.sim.options import add_seed
from fpga_pool.core.types import Floats
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.gangs.calibrated import LONGEST_S, jann_form
from fpga_pool.sim.gangs.models import MODELS, tsafrir
from fpga_pool.sim.gangs.swf import Jobs, to_swf, write_swf
from fpga_pool.sim.gangs.trace import read_trace

_hours = number_that(lambda value: 1 <= value < math.inf, "hours, 1 or more")
_percent = number_that(lambda value: 0 < value < 89, "percent above 0 and below 89, the sum of all head times")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    names = ", ".join(MODELS)
    parser.add_argument(
        "model", metavar="MODEL", help=f"one of {names}; or a trace (.swf, .swf.gz) to which Jann's model is fitted"
    )
    parser.add_argument("--jobs", type=positive_count, required=True, metavar="J", help="number of jobs to generate")
    parser.add_argument(
        "--processors", type=positive_count, required=True, metavar="N", help="number of processors of the machine"
    )
    parser.add_argument(
        "--longest",
        type=_hours,
        default=LONGEST_S / 3600,
        metavar="H",
        help="longest run time a job may request in hours, 1 or more; longer ones are truncated (default: 18)",
    )
    parser.add_argument(
        "--longest-share",
        type=_percent,
        metavar="P",
        help="percent of the jobs that request the longest run time; a higher value fits traces with many long jobs "
        "(default: the model's, about 22)",
    )
    parser.add_argument("--out", required=True, metavar="TRACE", help="output trace (.swf, .swf.gz)")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> Mapping[str, str | float]:
    """Write a trace, and return a summary of it."""
    longest_s = 3600 * arguments.longest
    rng = np.random.default_rng(arguments.seed)
    jobs = _made(arguments, rng)
    jobs = Jobs(submit_s=jobs.submit_s, run_s=np.minimum(jobs.run_s, longest_s), width=jobs.width)
    try:
        estimate_s: Floats = tsafrir(jobs.run_s, longest_s, rng, longest_percent=arguments.longest_share)
    except ValueError as error:
        raise InvalidInput(f"{arguments.model}: {error}") from None
    note = f"model {arguments.model}, estimates Tsafrir 2005, seed {arguments.seed}"
    write_swf(arguments.out, to_swf(jobs, estimate_s, note, arguments.processors))
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    work_s = float((jobs.width * jobs.run_s).sum())
    return {
        "model": arguments.model,
        "jobs": len(jobs.width),
        "mean_processors": float(jobs.width.mean()),
        "serial_share": float((jobs.width == 1).mean()),
        "mean_run_s": float(jobs.run_s.mean()),
        "mean_estimate_s": float(estimate_s.mean()),
        "load": work_s / (arguments.processors * span_s) if span_s > 0 else 0.0,
    }


def _made(arguments: argparse.Namespace, rng: np.random.Generator) -> Jobs:
    if arguments.model in MODELS:
        return MODELS[arguments.model](arguments.jobs, arguments.processors, rng)
    if not arguments.model.endswith((".swf", ".swf.gz")):
        names = ", ".join(MODELS)
        raise InvalidInput(f"model {arguments.model!r}: no such model; available: {names}; or the name of a trace")
    trace, _ = read_trace(arguments.model, arguments.processors)
    if len(trace.job) < 2:
        raise InvalidInput(f"{arguments.model}: too few jobs to fit a model to")
    return jann_form(trace, arguments.jobs, rng)
