"""`fpga-pool-sim task-workload`: generate problems of tasks on linked FPGAs from a model."""

import argparse
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fpga_pool.cli.arguments import number_that, positive_count, positive_seconds
from fpga_pool.cli.sim.options import add_seed
from fpga_pool.core.lattice.paper import irregularity
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.lattice.files import write_problem
from fpga_pool.sim.lattice.workloads import MODELS, Wanted, generate

_irregularity = number_that(lambda value: 0 <= value <= 0.9, "a number from 0 to 0.9")
_interval_s = number_that(lambda value: 0 <= value < math.inf, "seconds, 0 or more")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to the parser."""
    names = ", ".join(MODELS)
    parser.add_argument("model", metavar="MODEL", help=f"one of {names}; all are synthetic")
    parser.add_argument(
        "--workloads", type=positive_count, required=True, metavar="N", help="number of workloads to generate"
    )
    parser.add_argument(
        "--tasks",
        type=_range,
        default=(2, 20),
        metavar="RANGE",
        help="number of tasks in each workload, such as 1 or 2-20 (default: 2-20)",
    )
    parser.add_argument(
        "--irregularity",
        type=_irregularity,
        default=0.3,
        metavar="IRG",
        help="irregularity (Irg) of each workload, or of all tasks together if each workload has a single task "
        "(default: 0.3)",
    )
    parser.add_argument(
        "--enclosures", type=positive_count, default=4, metavar="D", help="number of rings of 8 FPGAs (default: 4)"
    )
    parser.add_argument(
        "--mean",
        type=positive_seconds,
        default=10.0,
        metavar="S",
        help="compute time on one FPGA in seconds (default: 10)",
    )
    parser.add_argument(
        "--interval",
        type=_interval_s,
        default=0.0,
        metavar="S",
        help="mean time between arrivals of workloads in seconds (default: 0, all at the start)",
    )
    parser.add_argument("--out", required=True, metavar="PROBLEM", help="output problem (.json)")
    add_seed(parser)


def run(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Write a problem, and return a summary of it."""
    if arguments.model not in MODELS:
        raise InvalidInput(f"model {arguments.model!r}: no such model; available: {', '.join(MODELS)}")
    wanted = Wanted(
        workloads=arguments.workloads,
        tasks=arguments.tasks,
        irregularity=arguments.irregularity,
        mean_s=arguments.mean,
        interval_s=arguments.interval,
        enclosures=arguments.enclosures,
    )
    file = generate(arguments.model, wanted, np.random.default_rng(arguments.seed))
    write_problem(arguments.out, file)
    problem = file.problem
    workload = np.unique(np.array(file.workloads), return_inverse=True)[1]
    return {
        "model": arguments.model,
        "workloads": arguments.workloads,
        "tasks": problem.tasks,
        "mean_fpgas": float(problem.shape_fpgas.mean()),
        "mean_s": float(problem.shape_seconds.mean()),
        "mean_irregularity": float(irregularity(problem.shape_seconds, workload).mean()),
        "irregularity_of_all": float(irregularity(problem.shape_seconds, np.zeros(problem.tasks, np.int64))[0]),
    }


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    try:
        least, most = int(first), int(last or first)
    except ValueError:
        least = most = 0
    if not 1 <= least <= most:
        raise argparse.ArgumentTypeError(f"expected tasks such as 1 or 2-20, got {text!r}")
    return least, most
